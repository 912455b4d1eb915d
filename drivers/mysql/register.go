package mysql

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

func init() {
	driver.Register(driver.Description{
		Name:    "MySQL",
		Schemes: []string{form.Scheme},
		Examples: []driver.Example{
			{URL: "mysql://USER@HOST/DATABASE?tls=true", Help: "MySQL or MariaDB, a table of the database; several hosts work, too"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), func(c *config) { c.sent = sent }))
		},
		Apart:        apart,
		WriteGuarded: writeGuarded,
		Requests:     "statements",
		Params:       form.Params,
		Credentials: []driver.Credentials{{
			Variables: []string{envPassword}, Reads: readsPassword, When: "with no password in the URL",
		}},
		Place: func(rest string) string {
			return driverutil.Place(rest, driverutil.Part{Word: "table", Param: paramTable})
		},
		TestURL: "$HOLDFAST_TEST_MYSQL_URL",
	})
}

func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}

// readsPassword reports whether a password is not in the URL.
func readsPassword(rawURL string) bool {
	_, password := serverurl.Login(rawURL)
	return !password
}
