package redis

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

func init() {
	driver.Register(driver.Description{
		Name:    "Redis",
		Schemes: []string{form.Scheme, form.TLSScheme},
		Examples: []driver.Example{
			{URL: "rediss://HOST/0", Help: "Redis or Valkey, with TLS; redis: without"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, func(c *config) { c.sent = sent }))
		},
		Apart:    apart,
		Requests: "requests",
		Params:   form.Params,
		Secrets:  []string{paramSentinelPassword},
		Credentials: []driver.Credentials{{
			Variables: []string{envPassword}, Reads: readsPassword, When: "with no password in the URL",
		}},
		Place: func(rest string) string {
			return driverutil.Place(rest, driverutil.Part{Word: "of", Param: paramMaster}, driverutil.Part{Word: "under", Param: paramPrefix})
		},
		TestURL: "$HOLDFAST_TEST_REDIS_URL",
	})
}

func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, func(c *config) { c.onlyReads = true }))
}

// readsPassword reports whether a password is not in the URL.
func readsPassword(rawURL string) bool {
	_, password := serverurl.Login(rawURL)
	return !password
}
