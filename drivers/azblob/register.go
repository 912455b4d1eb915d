package azblob

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func init() {
	driver.Register(driver.Description{
		Name:    "Azure",
		Schemes: []string{"azblob"},
		Examples: []driver.Example{
			{URL: "azblob://ACCOUNT/CONTAINER", Help: "Azure Blob Storage"},
			{URL: "azblob://emulator/locks", Help: "Azurite, Azure's emulator, on this machine"},
		},
		Open:         func(ctx context.Context, rawURL string) (driver.Locker, error) { return Open(ctx, rawURL) },
		OpenCounted:  openCounted,
		Apart:        apart,
		WriteGuarded: writeGuarded,
		Requests:     "requests",
		Params:       params,
		Secrets:      []string{"AccountKey", "SharedAccessKey", "SharedAccessSignature", "sig"},
		Credentials: []driver.Credentials{{Variables: []string{
			envConnectionString, envKey, envSAS,
			"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD", // for the default chain of Azure's SDK
		}, Reads: func(string) bool { return true }, When: "with the locks on Azure"}},
		Place:   place,
		TestURL: "$HOLDFAST_TEST_AZBLOB_URL",
	})
}

// openCounted counts the requests of a Locker, retries included.
func openCounted(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
	return driverutil.Opened(Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), WithPolicies(requestCount(sent))))
}

type requestCount func()

// Do implements policy.Policy.
func (sent requestCount) Do(req *policy.Request) (*http.Response, error) {
	sent()
	return req.Next()
}

// place returns account, container and prefix, and the endpoint if the URL has one.
func place(rest string) string {
	return driverutil.Place(rest, driverutil.Part{Word: "at", Param: paramEndpoint})
}
