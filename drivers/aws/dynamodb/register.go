package dynamodb

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

func init() {
	driver.Register(driver.Description{
		Name:    "DynamoDB",
		Schemes: []string{"dynamodb"},
		Examples: []driver.Example{
			{URL: "dynamodb://TABLE/PREFIX?region=REGION", Help: "items of a table of Amazon DynamoDB"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), func(c *settings) { c.sent = sent }))
		},
		Apart:        apart,
		WriteGuarded: writeGuarded,
		Requests:     "requests",
		Params:       form.Params,
		Credentials: []driver.Credentials{{
			Variables: []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
			Reads:     func(string) bool { return true }, When: "with the locks on DynamoDB",
		}},
		Place:   request.DescribePlace,
		TestURL: "$HOLDFAST_TEST_DYNAMODB_URL",
	})
}

// openForReading sends nothing.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}
