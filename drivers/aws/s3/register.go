package s3

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

func init() {
	driver.Register(driver.Description{
		Name:    "S3",
		Schemes: []string{"s3"},
		Examples: []driver.Example{
			{URL: "s3://BUCKET/PREFIX?region=REGION", Help: "objects of Amazon S3, or of a store that speaks its protocol"},
		},
		Open: func(ctx context.Context, rawURL string) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL))
		},
		OpenForReading: openForReading,
		OpenForCheck:   openForReading,
		OpenCounted: func(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
			return driverutil.Opened(Open(ctx, rawURL, func(c *settings) { c.sent = sent }))
		},
		Apart:    apart,
		Requests: "requests",
		Params:   form.Params,
		Credentials: []driver.Credentials{{
			Variables: []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
			Reads:     func(string) bool { return true }, When: "with the locks on S3",
		}},
		Place:   request.DescribePlace,
		TestURL: "$HOLDFAST_TEST_S3_URL",
	})
}

// openForReading sends nothing.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}
