package postgres

import (
	"context"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func init() {
	driver.Register(driver.Description{
		Name:    "PostgreSQL",
		Schemes: []string{"postgres", "postgresql"},
		Examples: []driver.Example{
			{URL: "postgres://USER@HOST/DATABASE?sslmode=verify-full", Help: "PostgreSQL, a table of the database; several hosts work, too"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, onlyReads))
		},
		OpenForCheck: func(_ context.Context, rawURL string) (driver.Locker, error) { // whatever is wrong is for the Checker to report
			return driverutil.Opened(connect(rawURL, []Option{onlyReads}))
		},
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), func(c *config) { c.sent = sent }))
		},
		Apart:        apart,
		WriteGuarded: writeGuarded,
		Requests:     "statements",
		Params:       params,
		Secrets:      []string{"password", "sslpassword", paramListen},
		Credentials: []driver.Credentials{{
			Variables: []string{"PGPASSWORD"}, Reads: readsPassword, When: "with no password in the URL",
		}, {
			Variables: []string{"PGSSLPASSWORD"}, Reads: readsPassphrase, When: "with no sslpassword in the URL",
		}},
		TestURL: "$HOLDFAST_TEST_POSTGRES_URL",
	})
}

// readsPassword reports whether a password is not in the URL.
func readsPassword(rawURL string) bool {
	base, query, _ := strings.Cut(rawURL, "?")
	_, base, _ = strings.Cut(base, "//")
	user, _, named := strings.Cut(base, "@")
	return !strings.Contains("&"+query, "&password=") && (!named || !strings.Contains(user, ":"))
}

// readsPassphrase reports whether the passphrase of a key is not in the URL.
func readsPassphrase(rawURL string) bool {
	_, query, _ := strings.Cut(rawURL, "?")
	return !strings.Contains("&"+query, "&sslpassword=")
}

// tracer counts the requests of a Locker.
type tracer struct{ sent func() }

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.sent()
	return ctx
}

func (t tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
