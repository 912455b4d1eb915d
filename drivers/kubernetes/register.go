package kubernetes

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func init() {
	driver.Register(driver.Description{
		Name:    "Kubernetes",
		Schemes: []string{"kubernetes"},
		Examples: []driver.Example{
			{URL: "kubernetes://NAMESPACE", Help: "Leases of a Kubernetes cluster: the pod's own, or that of kubectl"},
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
		Params:   params,
		Place: func(rest string) string {
			return driverutil.Place(rest, driverutil.Part{Word: "context", Param: paramContext}, driverutil.Part{Word: "kubeconfig",
				Param: paramKubeconfig}, driverutil.Part{Word: "prefix", Param: paramPrefix})
		},
		TestURL: "$HOLDFAST_TEST_KUBERNETES_URL",
	})
}

// openForReading sends nothing.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, onlyReads))
}
