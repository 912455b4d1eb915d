package azblob

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// answering is a transport that answers each request with a status, or, if that is 0, has no network.
type answering struct {
	status int
	body   string
}

func (a answering) Do(r *http.Request) (*http.Response, error) {
	if a.status == 0 {
		return nil, errors.New("no network")
	}
	if r.Method == http.MethodGet && a.status == http.StatusUnauthorized && strings.HasSuffix(r.URL.Path, "openid-configuration") {
		a = answering{http.StatusOK, `{"issuer": "https://login.microsoftonline.com/tenant/v2.0",
			"authorization_endpoint": "https://login.microsoftonline.com/tenant/authorize",
			"token_endpoint": "https://login.microsoftonline.com/tenant/token"}`}
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// noIdentity hides what the machine has of credentials from the test.
func noIdentity(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AZURE_") || strings.HasPrefix(name, "IDENTITY_") ||
			strings.HasPrefix(name, "MSI_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("PATH", t.TempDir()) // no az, no azd
}

// Without a credential that works each call is denied, so that nobody retries it forever. With one whose login fails it is retried. In
// both cases the error is one line that says what to do, whatever azidentity's version.
func TestNoCredential(t *testing.T) {
	if redact(nil) != nil {
		t.Error("no error becomes one")
	}
	once := policy.RetryOptions{MaxRetries: -1}
	chain := func(options azcore.ClientOptions) (azcore.TokenCredential, error) {
		return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: options,
			DisableInstanceDiscovery: true})
	}
	managed := func(options azcore.ClientOptions) (azcore.TokenCredential, error) {
		return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options})
	}
	secret := func(options azcore.ClientOptions) (azcore.TokenCredential, error) {
		return azidentity.NewClientSecretCredential("tenant", "client", "secret", &azidentity.ClientSecretCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: true})
	}
	for name, c := range map[string]struct {
		open   func(azcore.ClientOptions) (azcore.TokenCredential, error)
		server answering
		denied bool
		says   string
	}{
		"nothing": {chain, answering{}, true, ""},
		"another service at the address of Azure's": {chain, answering{http.StatusForbidden, "{}"}, true, "ManagedIdentityCredential"},
		"that asks for a credential":                {chain, answering{http.StatusUnauthorized, "no\nno\nno"}, true, "ManagedIdentityCredential"},
		"no managed identity": {managed, answering{http.StatusBadRequest, "Identity not found"}, true,
			"ManagedIdentityCredential"},
		"no answer about managed identities": {managed, answering{}, false, "no network"},
		"a wrong secret": {secret, answering{http.StatusUnauthorized, `{"error": "invalid_client", "error_description": "AADSTS7000215: x"}`},
			true, "AADSTS7000215"},
		"a login that fails":        {secret, answering{http.StatusInternalServerError, "{}"}, false, "ClientSecretCredential"},
		"a login that is not there": {secret, answering{}, false, "no network"},
	} {
		t.Run(name, func(t *testing.T) {
			noIdentity(t)
			credential, err := c.open(azcore.ClientOptions{Transport: c.server, Retry: once})
			if err != nil {
				t.Fatal(err)
			}
			_, alone := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
			client, err := container.NewClient("https://account1.blob.core.windows.net/locks", credential, &container.ClientOptions{
				ClientOptions: azcore.ClientOptions{Transport: answering{}}})
			if err != nil {
				t.Fatal(err)
			}
			l, err := New(client)
			if err != nil {
				t.Fatal(err)
			}
			_, inspect := l.Inspect(bounded(t), "job")
			_, acquire := l.TryAcquire(bounded(t), request("job"))
			_, renew := l.Renew(bounded(t), driver.Lease{Name: "job", ID: driver.NewLeaseID(newID()), TTL: time.Minute, Token: 1})
			want := errLoginFailed
			if c.denied {
				want = errNoCredential
			}
			for call, err := range map[string]error{"alone": redact(alone), "inspect": inspect, "acquire": acquire, "renew": renew} {
				if !errors.Is(err, want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 600 || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", call, err)
				}
				if call != "alone" && errors.Is(err, driver.ErrDenied) != c.denied {
					t.Errorf("%s is denied: %v", call, !c.denied)
				}
			}
			t.Log(acquire)
		})
	}
}
