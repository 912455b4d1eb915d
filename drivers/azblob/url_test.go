package azblob

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// noCredentials hides the machine's credentials from the test.
func noCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{envConnectionString, envKey, envSAS} {
		t.Setenv(name, "")
	}
}

func TestURL(t *testing.T) {
	noCredentials(t)
	t.Setenv(envKey, azuritetest.Key)
	for raw, want := range map[string]string{
		"azblob://account1/leases":      "https://account1.blob.core.windows.net/leases",
		"azblob://account1/leases/":     "https://account1.blob.core.windows.net/leases",
		"azblob://account1/leases/a/b/": "https://account1.blob.core.windows.net/leases",
		"azblob://emulator/leases":      "http://127.0.0.1:10000/devstoreaccount1/leases",
		"azblob://account1/leases?endpoint=https://account1.blob.core.chinacloudapi.cn/":  "https://account1.blob.core.chinacloudapi.cn/leases",
		"azblob://emulator/leases?endpoint=http%3A%2F%2F127.0.0.1%3A1%2Fdevstoreaccount1": "http://127.0.0.1:1/devstoreaccount1/leases",
	} {
		l, err := Open(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := l.container.URL(); got != want {
			t.Errorf("%s leads to %s, want %s", raw, got, want)
		}
		if prefix := l.config.prefix; strings.Contains(raw, "/a/b") != (prefix == "a/b/") {
			t.Errorf("%s has the prefix %q", raw, prefix)
		}
		_ = l.Close(t.Context())
	}
}

func TestInvalidURL(t *testing.T) {
	noCredentials(t)
	const secret = "sEcReT"
	for _, raw := range []string{
		"azblob:", "azblob://", "azblob:account1/leases", "azblob://account1", "azblob://account1/", "azblob:///leases",
		"azblob://Account/leases", "azblob://ac/leases", "azblob://account-1/leases", "azblob://account1:443/leases",
		"azblob://account1/Leases", "azblob://account1/le", "azblob://account1/-leases", "azblob://account1/a--b",
		"azblob://account1/" + strings.Repeat("x", 64),
		"azblob://account1/leases/../x", "azblob://account1/leases//x", "azblob://account1/leases/%00",
		"azblob://account1/leases/" + strings.Repeat("x", 255),
		"azblob://account1/leases#f", "azblob://user:" + secret + "@account1/leases", "azblob://account1/leases?sig=" + secret,
		"azblob://account1/leases?x=1", "azblob://account1/leases?endpoint=x", "azblob://account1/leases?endpoint=ftp://x",
		"azblob://account1/leases?endpoint=",
		"azblob://account1/leases?client_id=", "azblob://emulator/leases?client_id=x",
		"azblob://account1/leases?endpoint=https%3A%2F%2Fx%2F%3Fsig%3D" + secret, "azblob://account1/leases?endpoint=https://u:" + secret + "@x",
		"azblob://AccountName=a;AccountKey=" + secret + "==/leases", "azblob://" + secret + "=/leases", "azblob://account1/AccountKey=" + secret,
		"azblob://account1/leases&sig=" + secret, "azblob://account1/leases;AccountKey=" + secret + "==/x",
		"azblob://account1/leases?endpoint=%zz" + secret, "azblob://account1/%zz" + secret, "azblob://account1/leases?endpoint=https://x/%25zz" +
			secret,
		"azblob://account1/leases?endpoint=https://x%3F", "azblob://account1/leases?endpoint=https://:443/x",
		"azblob://account1/leases/" + secret + "+/=", "azblob://account1/leases?" + secret + "%2B%3D",
	} {
		_, err := driver.Open(t.Context(), raw)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", raw, err)
		} else if !strings.HasPrefix(err.Error(), "holdfast: connect to azblob: ") {
			t.Errorf("%s: the error does not begin with its operation: %v", raw, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the secret: %v", raw, err)
		}
	}
}

// The first available source is used, and the log has only its kind.
func TestCredentials(t *testing.T) {
	const key, sig = "c2VjcmV0LWtleQ==", "sig=secret-signature"
	for _, c := range []struct {
		url, connection, key, sas string
		want                      string // in the log or the error
		address                   string
	}{
		{url: "azblob://emulator/leases", key: key, want: "the emulator's shared key"},
		{url: "azblob://account1/leases?client_id=abc", key: key, sas: sig, want: "managed identity with the URL's client_id"},
		{url: "azblob://account1/leases", connection: "AccountName=account1;AccountKey=" + key, key: key, sas: sig,
			want: "shared key of " + envConnectionString},
		{url: "azblob://account1/leases", connection: "DefaultEndpointsProtocol=https;AccountName=account1;AccountKey=" + key +
			";EndpointSuffix=core.usgovcloudapi.net",
			want: "shared key of " + envConnectionString, address: "https://account1.blob.core.usgovcloudapi.net/leases"},
		{url: "azblob://account1/leases", connection: "BlobEndpoint=https://blobs.example.org/;SharedAccessSignature=" + sig,
			want: "SAS of " + envConnectionString, address: "https://blobs.example.org/leases?" + sig},
		{url: "azblob://account1/leases?endpoint=https://proxy.example.org",
			connection: "BlobEndpoint=https://blobs.example.org/;SharedAccessSignature=" + sig,
			want:       "SAS of " + envConnectionString, address: "https://proxy.example.org/leases?" + sig},
		{url: "azblob://account1/leases", connection: "AccountName=other;AccountKey=" + key, want: `of account "other"`},
		{url: "azblob://account1/leases", connection: "UseDevelopmentStorage=true", want: `of account "` + emulatorAccount},
		{url: "azblob://" + emulatorAccount + "/leases", connection: "UseDevelopmentStorage=true",
			want: "shared key of " + envConnectionString, address: emulatorEndpoint + "/leases"},
		{url: "azblob://account1/leases", connection: "AccountName=account1 AccountKey=" + key, want: "of account not shown"},
		{url: "azblob://account1/leases", connection: "BlobEndpoint=https://blobs.example.org/?" + sig + ";SharedAccessSignature=" + sig,
			want: "with an address that is not shown"},
		{url: "azblob://account1/leases", connection: "AccountKey=" + key + ";EndpointSuffix=:x", want: "with an address that is not shown"},
		{url: "azblob://account1/leases", connection: "AccountName=account1", want: "AccountKey or SharedAccessSignature"},
		{url: "azblob://account1/leases", connection: "AccountName=account1;AccountKey=%%%", want: "base64"},
		{url: "azblob://account1/leases", key: "not base64: " + key, want: "base64"},
		{url: "azblob://account1/leases", key: key, sas: sig, want: "shared key of " + envKey},
		{url: "azblob://account1/leases", sas: "?" + sig, want: "SAS of " + envSAS, address: "https://account1.blob.core.windows.net/leases?" +
			sig},
		{url: "azblob://account1/leases", want: "azidentity's default chain"},
	} {
		t.Setenv(envConnectionString, c.connection)
		t.Setenv(envKey, c.key)
		t.Setenv(envSAS, c.sas)
		said := &output{}
		l, err := Open(t.Context(), c.url, WithLogger(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		said.add(err)
		if text := said.String(); !strings.Contains(text, c.want) || strings.Contains(text, key) || strings.Contains(text, sig) {
			t.Errorf("%+v: said %s", c, text)
		}
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", c.url, err)
			}
			continue
		}
		if c.address != "" && l.container.URL() != c.address {
			t.Errorf("%s leads to %s, want %s", c.url, l.container.URL(), c.address)
		}
		_ = l.Close(t.Context())
	}
}

func TestCloud(t *testing.T) {
	for endpoint, want := range map[string]string{
		"": "", "https://a.blob.core.chinacloudapi.cn": cloud.AzureChina.ActiveDirectoryAuthorityHost,
		"https://a.blob.core.usgovcloudapi.net": cloud.AzureGovernment.ActiveDirectoryAuthorityHost, "https://a.example.org": "",
	} {
		if got := (location{account: "a", endpoint: endpoint}).cloud().ActiveDirectoryAuthorityHost; got != want {
			t.Errorf("%q: log in at %q, want %q", endpoint, got, want)
		}
	}
}

// A SAS for one container cannot create containers. An existing container is enough.
func TestWithoutTheRightToCreateContainers(t *testing.T) {
	service := azuritetest.Shared(t)
	noCredentials(t)
	store := newTestContainer(t)
	t.Setenv(envSAS, sasOf(t, store.client, allPermissions))
	// The emulator's account has another name here, so that the SAS is used.
	l, err := Open(t.Context(), strings.Replace(service.URL(store.name), "//emulator/", "//account1/", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	lockLifecycle(t, l, store.locker())

	absent := service.Fresh(t)
	t.Setenv(envSAS, sasOf(t, service.Client(t, absent, nil), sas.ContainerPermissions{Read: true, Create: true, Write: true, List: true}))
	l2, err := Open(t.Context(), strings.Replace(service.URL(absent), "//emulator/", "//account1/", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close(t.Context())
	_, err = l2.TryAcquire(bounded(t), request("n"))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "the container does not exist and cannot be created") {
		t.Errorf("without the container: %v", err)
	}
}

// A wrong key is reported as such.
func TestWrongCredential(t *testing.T) {
	service := azuritetest.Shared(t)
	noCredentials(t)
	t.Setenv(envKey, "d3Jvbmc=")
	l, err := Open(t.Context(), "azblob://"+service.Account+"/leases?endpoint="+service.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	_, err = l.TryAcquire(bounded(t), request("n"))
	var answer *StorageError
	if !errors.As(err, &answer) || answer.Status != 403 || answer.RequestID == "" || !strings.Contains(err.Error(), "credential") {
		t.Errorf("got %v", err)
	}
}

// FuzzURL checks that a URL leads to its own container, or is an *InvalidError that shows nothing
// of what may be a secret.
func FuzzURL(f *testing.F) {
	f.Add("azblob://account1/leases/a/b/", "https://account1.blob.core.chinacloudapi.cn")
	f.Add("azblob://emulator/leases?history=3", "")
	f.Add("azblob://emulator/leases?client_id=x", "http://127.0.0.1:10000/devstoreaccount1/")
	f.Add("azblob://account1/leases?", "https://h?")
	f.Add("azblob://account1/le%61ses#", "https://:443/%3Fsig=x")
	f.Add("azblob:x", "HTTPS://[::1]:1//#")
	f.Fuzz(func(t *testing.T, raw, endpoint string) {
		const secret = "s3cr3t/0f=7h3+u53r" // like a key in base64
		for _, r := range []string{
			raw, "azblob://account1/leases?endpoint=" + url.QueryEscape(endpoint), raw + secret, "azblob://" + raw + "/" + secret,
			"azblob://account1/leases?" + endpoint + secret, "azblob://account1/leases?endpoint=" + url.QueryEscape(endpoint+secret),
			"azblob://user:" + secret + raw + "@account1/leases",
		} {
			checkURL(t, r, secret)
		}
	})
}

func checkURL(t *testing.T, raw, secret string) {
	t.Helper()
	where, err := parseURL(raw)
	if err == nil {
		_, err = newConfig([]Option{WithPrefix(where.prefix)})
	}
	if err != nil {
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "URL") && invalid.Field != "prefix" {
			t.Errorf("%q: %v is no *InvalidError about the URL", raw, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the secret is in %v", raw, err)
		}
		return
	}
	u, err := url.Parse(where.containerURL())
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		!strings.HasSuffix(u.Path, "/"+where.container) || u.Scheme != "https" && u.Scheme != "http" {
		t.Errorf("%q leads to %q, error %v", raw, where.containerURL(), err)
	}
	if where.endpoint == "" && where.account != emulator && u.Host != where.account+".blob.core.windows.net" {
		t.Errorf("%q leads to the host %q", raw, u.Host)
	}
}

// FuzzConnectionString checks that a connection string leads to the URL's container, or is an
// *InvalidError that shows no secret.
func FuzzConnectionString(f *testing.F) {
	f.Add("AccountName=account1;AccountKey=", ";EndpointSuffix=core.windows.net")
	f.Add("BlobEndpoint=https://blobs.example.org/;SharedAccessSignature=sig=", "")
	f.Add("UseDevelopmentStorage=true;x=", "")
	f.Add("AccountName=account1 AccountKey=", "")
	f.Add("AccountKey=eA==;BlobEndpoint=https://h?sig=", "")
	f.Add("AccountKey=eA==;BlobEndpoint=https://user:", "/x")
	f.Add("AccountKey=eA==;EndpointSuffix=x/", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cr3t/0f=7h3+u53r"
		w := location{account: "account1", container: "leases"}
		to, _, err := w.withConnectionString(before+secret+after, azcore.ClientOptions{})
		if err != nil {
			var invalid *driver.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%q: %v is no *InvalidError", before+secret+after, err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%q: the secret is in %v", before+secret+after, err)
			}
			return
		}
		address, _, _ := strings.Cut(to.container.URL(), "?")
		if u, err := url.Parse(address); err != nil || u.Hostname() == "" || u.User != nil || !strings.HasSuffix(u.Path, "/leases") {
			t.Errorf("%q leads to %q, error %v", before+secret+after, address, err)
		}
	})
}

// The URL's prefix comes before that of the options.
func TestPrefixOfURL(t *testing.T) {
	for url, want := range map[string]string{"azblob://emulator/leases": "option/", "azblob://emulator/leases/url": "url/"} {
		l, err := Open(t.Context(), url, WithPrefix("option"))
		if err != nil {
			t.Fatal(err)
		}
		if l.config.prefix != want {
			t.Errorf("%s has the prefix %q, want %q", url, l.config.prefix, want)
		}
		closeLocker(t, l)
	}
}

// The URL's number of past holders comes before that of the options.
func TestHistoryOfURL(t *testing.T) {
	for url, want := range map[string]int{"azblob://emulator/leases": 5, "azblob://emulator/leases?history=3": 3,
		"azblob://emulator/leases?history=0": 0} {
		l, err := Open(t.Context(), url, WithHistory(5))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Info().History; got != want {
			t.Errorf("%s keeps %d past holders, want %d", url, got, want)
		}
		closeLocker(t, l)
	}
	for _, bad := range []string{"33", "-1", "x", ""} {
		if _, err := Open(t.Context(), "azblob://emulator/leases?history="+bad); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "URL parameter history") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// An endpoint without a domain that names the account needs the account in its path.
func TestEndpointWithoutAccount(t *testing.T) {
	for endpoint, refused := range map[string]bool{
		"http://127.0.0.1:10000": true, "http://127.0.0.1:10000/": true, "http://localhost:10000": true, "http://[::1]:10000": true,
		"http://127.0.0.1:10000/devstoreaccount1": false, "https://blobs.example.com": false, "http://azurite:10000": false,
	} {
		_, err := parseURL("azblob://emulator/leases?endpoint=" + url.QueryEscape(endpoint))
		if got := errors.Is(err, driver.ErrInvalid) &&
			strings.Contains(err.Error(), "must be with the account, such as http://127.0.0.1:10000/devstoreaccount1"); got != refused {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// Behind a name that is not refused, Azurite answers 400. The error names the remedy.
func TestEndpointWithoutAccountOfAzurite(t *testing.T) {
	service := azuritetest.Shared(t)
	address, _ := strings.CutSuffix(service.Endpoint, "/"+service.Account)
	if address == service.Endpoint {
		t.Fatalf("the endpoint %s does not end with the account", service.Endpoint)
	}
	where := location{account: emulator, container: "leases", endpoint: address}
	to, err := where.withKey(emulatorAccount, "key of the emulator", emulatorKey, azcore.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newLocker(to.container, defaults).Inspect(t.Context(), "job")
	if err == nil || !strings.Contains(err.Error(), "the endpoint of an emulator ends with the account") {
		t.Errorf("got %v", err)
	}
}

// An emulator that does not run is said to be one.
func TestEmulatorDoesNotRun(t *testing.T) {
	l, err := Open(t.Context(), "azblob://emulator/locks?endpoint=http://127.0.0.1:1/devstoreaccount1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = l.Inspect(ctx, "job")
	const want = "connection refused; does Azurite run there? Start it, or correct the URL parameter endpoint"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
