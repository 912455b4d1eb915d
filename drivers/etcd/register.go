package etcd

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

func init() {
	driver.Register(driver.Description{
		Name:    "etcd",
		Schemes: []string{form.Scheme, form.TLSScheme},
		Examples: []driver.Example{
			{URL: "etcds://HOST1,HOST2,HOST3/PREFIX", Help: "etcd, with TLS; etcd: without"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, func(c *settings) { c.sent = sent }))
		},
		Apart:        apart,
		WriteGuarded: writeGuarded,
		Requests:     "requests",
		Params:       form.Params,
		Credentials: []driver.Credentials{{
			Variables: []string{envPassword}, Reads: readsPassword, When: "with a user and no password in the URL",
		}},
		TestURL: "$HOLDFAST_TEST_ETCD_URL",
	})
}

// openForReading sends nothing.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}

// readsPassword reports whether a URL has a user without a password.
func readsPassword(rawURL string) bool {
	named, password := serverurl.Login(rawURL)
	return named && !password
}
