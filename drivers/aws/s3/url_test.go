package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// Each mistake has an error that names the field.
func TestURLErrors(t *testing.T) {
	isolate(t)
	for rawURL, want := range map[string]string{
		"s3://locks?regoin=a":                    "one of endpoint, history, pathStyle, profile, region",
		"s3://locks:9000":                        "more than a bucket and a prefix",
		"s3://":                                  "URL bucket",
		"s3:///prefix":                           "URL bucket",
		"s3://ab":                                "3 to 63",
		"s3://Locks":                             "small letters",
		"s3://lo_cks":                            "small letters",
		"s3://-locks":                            "both ends",
		"s3://locks-":                            "both ends",
		"s3://lo..cks":                           "small letters",
		"s3://" + strings.Repeat("a", 64):        "3 to 63",
		"s3://locks--use1-az4--x-s3":             "directory buckets",
		"s3://locks/a//b":                        "empty part",
		"s3://locks/a/../b":                      "URL prefix",
		"s3://locks/a.":                          "ends with a dot",
		"s3://locks/a%20b":                       "URL prefix",
		"s3://locks/" + strings.Repeat("a", 501): "at most 500",
		"s3://locks?region=EU":                   "such as eu-central-1",
		"s3://locks?endpoint=s3.example.com":     "URL parameter endpoint",
		"s3://locks?pathStyle=yes":               "true or false",
		"s3://locks?region=eu-test-1&history=33": "from 0 to 32",
		"s3://locks":                             "region not set is invalid: must be that of the bucket",
	} {
		_, err := Open(t.Context(), rawURL)
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
}

// isolate takes what this machine has of AWS out of the environment.
func isolate(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // so that it comes back
			_ = os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// The address of a bucket follows from region, endpoint and style.
func TestAddress(t *testing.T) {
	isolate(t)
	for rawURL, want := range map[string]string{
		"s3://locks?region=eu-central-1":                                         "https://locks.s3.eu-central-1.amazonaws.com",
		"s3://locks/a/b/?region=eu-central-1":                                    "https://locks.s3.eu-central-1.amazonaws.com",
		"S3://locks?region=cn-north-1":                                           "https://locks.s3.cn-north-1.amazonaws.com.cn",
		"s3://locks?region=eusc-de-east-1":                                       "https://locks.s3.eusc-de-east-1.amazonaws.eu",
		"s3://a.locks?region=eu-central-1":                                       "https://s3.eu-central-1.amazonaws.com/a.locks",
		"s3://locks?region=eu-central-1&pathStyle=true":                          "https://s3.eu-central-1.amazonaws.com/locks",
		"s3://locks?endpoint=http://127.0.0.1:9000":                              "http://127.0.0.1:9000/locks",
		"s3://locks?endpoint=https://x.example.com:443/storage/":                 "https://x.example.com/storage/locks",
		"s3://locks?endpoint=https://x.example.com&pathStyle=false":              "https://locks.x.example.com",
		"s3://locks?region=us-gov-west-1&endpoint=https://s3-fips.example.com:1": "https://s3-fips.example.com:1/locks",
	} {
		l, err := Open(t.Context(), rawURL, onlyReads)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if l.store.at != want {
			t.Errorf("%s: %s, want %s", rawURL, l.store.at, want)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The SDK's configuration is used: the environment, a profile, and an endpoint for S3 alone. The URL comes first.
func TestConfiguration(t *testing.T) {
	server := s3test.Start(t)
	isolate(t)
	write := func(variable, text string) {
		if err := os.WriteFile(os.Getenv(variable), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("AWS_CONFIG_FILE", "[profile ops]\nregion = "+s3test.Region+"\nservices = test\n[profile wrong]\nregion = x\n"+
		"[services test]\ns3 =\n  endpoint_url = "+server.Endpoint()+"\n[profile broken]\nregion = "+s3test.Region+
		"\ncredential_process = echo "+s3test.Secret+"\n")
	write("AWS_SHARED_CREDENTIALS_FILE", "[ops]\naws_access_key_id = "+s3test.KeyID+"\naws_secret_access_key = "+s3test.Secret+"\n")
	works := func(what, rawURL string) {
		t.Helper()
		l, err := Open(t.Context(), rawURL)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	fails := func(what, rawURL, want string) {
		t.Helper()
		if _, err := Open(t.Context(), rawURL); err == nil || !strings.Contains(err.Error(), want) || showsSecret(err.Error()) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	works("a profile", "s3://locks?profile=ops")
	fails("a profile that does not exist", "s3://locks?profile=absent", "absent")
	fails("a process that prints no credential", "s3://locks?profile=broken&endpoint="+server.Endpoint(), "run it by hand")
	fails("no credentials", "s3://locks?region="+s3test.Region+"&endpoint="+server.Endpoint(), "getting credentials (of the environment")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
	t.Setenv("AWS_REGION", s3test.Region)
	works("the environment", "s3://locks/a?endpoint="+server.Endpoint())
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	works("the URL's endpoint", "s3://locks/a?endpoint="+server.Endpoint())
	fails("another endpoint", "s3://locks", "127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_S3", server.Endpoint())
	works("an endpoint for S3", "s3://locks")
	t.Setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
	if l, err := Open(t.Context(), "s3://locks", onlyReads); err != nil || l.store.at != "https://locks.s3.eu-test-1.amazonaws.com" {
		t.Errorf("configured endpoints are ignored: %v, %v", l, err)
	}
}

// A host that does not exist is a wrong region mostly.
func TestUnknownRegion(t *testing.T) {
	t.Parallel()
	config := configFor("")
	config.BaseEndpoint, config.Region = nil, "eu-cental-1"
	config.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "locks.s3.eu-cental-1.amazonaws.com", IsNotFound: true}
	}}}
	_, err := New(t.Context(), config, "locks")
	if err == nil || !strings.Contains(err.Error(), `is "eu-cental-1" a region of AWS?`) {
		t.Errorf("got %v", err)
	}
}

// The host of a bucket is a part of the signature, and of the request.
func TestVirtualHost(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	config := configFor("http://s3.test:80")
	config.HTTPClient = &http.Client{Timeout: time.Nanosecond, Transport: &http.Transport{DialContext: func(ctx context.Context, network,
		address string) (net.Conn, error) {
		if address != "locks.s3.test:80" {
			return nil, errors.New("the address is " + address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Addr())
	}}}
	l := openRacing(t, config, WithPathStyle(false), WithPrefix("a"))
	acquire(t, l, "n", "a", 30*time.Second)
	if server.Object("a/n") == nil {
		t.Errorf("the objects are %v", server.Keys())
	}
}

// A program's own configuration is used, and stays as it is.
func TestNew(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	config := configFor(server.Endpoint())
	client := &http.Client{Transport: http.DefaultTransport}
	config.HTTPClient = client
	l, err := New(t.Context(), config, s3test.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if client.Transport != http.DefaultTransport || client.CheckRedirect != nil {
		t.Error("the program's client was changed")
	}
	none, other := config, config
	none.Credentials, other.HTTPClient = nil, doer{}
	for what, bad := range map[string]func() (*Locker, error){
		"bucket":      func() (*Locker, error) { return New(t.Context(), config, "Locks") },
		"credentials": func() (*Locker, error) { return New(t.Context(), none, "locks") },
		"client":      func() (*Locker, error) { return New(t.Context(), other, "locks") },
		"endpoint":    func() (*Locker, error) { return New(t.Context(), configFor("s3.example.com"), "locks") },
		"region":      func() (*Locker, error) { return New(t.Context(), aws.Config{Credentials: config.Credentials}, "locks") },
		"nil":         func() (*Locker, error) { return New(t.Context(), config, "locks", nil) },
		"history":     func() (*Locker, error) { return New(t.Context(), config, "locks", WithHistory(-1)) },
		"prefix":      func() (*Locker, error) { return New(t.Context(), config, "locks", WithPrefix("/a")) },
	} {
		if _, err := bad(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

type doer struct{}

func (doer) Do(*http.Request) (*http.Response, error) { return nil, errors.New("not called") }
