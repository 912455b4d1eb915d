package nats

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func init() {
	driver.Register(driver.Description{
		Name:    "NATS",
		Schemes: []string{form.Scheme},
		Examples: []driver.Example{
			{URL: "nats://HOST1,HOST2,HOST3/BUCKET?creds=FILE", Help: "NATS with JetStream, a key-value bucket"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), func(c *settings) { c.sent = sent }))
		},
		Apart:    apart,
		Requests: "requests",
		Params:   form.Params,
		Secrets:  []string{paramCreds, paramNKey}, // names that a seed may follow by mistake
		TestURL:  "$HOLDFAST_TEST_NATS_URL",
	})
}

// openForReading makes no bucket.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}
