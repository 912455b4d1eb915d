package postgres

import (
	"context"
	"log/slog"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	driver.Register(driver.Description{
		Name:    "PostgreSQL",
		Schemes: []string{"postgres", "postgresql"},
		Examples: []driver.Example{
			{URL: "postgres://USER@HOST/DATABASE?sslmode=verify-full", Help: "PostgreSQL, a table of the database; several hosts work, too"},
		},
		Open:           func(ctx context.Context, rawURL string) (driver.Locker, error) { return begun(ctx, rawURL, nil) },
		OpenForReading: openForReading,
		OpenForCheck:   openForCheck,
		OpenCounted:    openCounted,
		Requests:       "statements",
		Params:         params,
		Secrets:        []string{"password", "sslpassword", paramListen},
		Credentials: []driver.Credentials{{
			Variables: []string{"PGPASSWORD"}, Reads: readsPassword, When: "with no password in the URL",
		}},
		TestURL: "$HOLDFAST_TEST_POSTGRES_URL",
	})
}

// begun opens a Locker that set has changed.
func begun(ctx context.Context, rawURL string, set func(*Locker), opts ...Option) (driver.Locker, error) {
	l, err := connect(rawURL, opts)
	if err != nil {
		return nil, err // a nil *Locker in the interface would not be nil
	}
	if set != nil {
		set(l)
	}
	if l, err = l.begin(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// openForReading makes a Locker for a user who may only read. It makes no table.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return begun(ctx, rawURL, func(l *Locker) { l.forReading = true })
}

// openForCheck makes a Locker that sends nothing yet: whatever is wrong is for its Checker to report.
func openForCheck(_ context.Context, rawURL string) (driver.Locker, error) {
	l, err := connect(rawURL, nil)
	if err != nil {
		return nil, err
	}
	l.forCheck = true
	return l, nil
}

// openCounted counts the statements of a Locker.
func openCounted(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
	return begun(ctx, rawURL, nil, WithLogger(slog.New(slog.DiscardHandler)), func(c *config) { c.sent = sent })
}

// readsPassword reports whether a password is not in the URL.
func readsPassword(rawURL string) bool {
	base, query, _ := strings.Cut(rawURL, "?")
	_, base, _ = strings.Cut(base, "//")
	user, _, named := strings.Cut(base, "@")
	return !strings.Contains("&"+query, "&password=") && (!named || !strings.Contains(user, ":"))
}
