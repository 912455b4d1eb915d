package dynamodb

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// Each mistake has an error that names the field.
func TestURLErrors(t *testing.T) {
	isolate(t)
	for rawURL, want := range map[string]string{
		"dynamodb://locks?regoin=a":                       "one of endpoint, history, profile, region",
		"dynamodb://locks:8000":                           "more than a table and a prefix",
		"dynamodb://":                                     "URL table",
		"dynamodb:///prefix":                              "URL table",
		"dynamodb://ab":                                   "3 to 255",
		"dynamodb://" + strings.Repeat("a", 256):          "3 to 255",
		"dynamodb://locks/a//b":                           "empty part",
		"dynamodb://locks/a%20b":                          "URL prefix",
		"dynamodb://locks/" + strings.Repeat("a", 501):    "at most 500",
		"dynamodb://locks?region=EU":                      "such as eu-central-1",
		"dynamodb://locks?endpoint=127.0.0.1:8000":        "URL parameter endpoint",
		"dynamodb://locks?region=eu-test-1&history=33":    "from 0 to 32",
		"dynamodb://locks":                                "region not set is invalid: must be that of the table",
		"dynamodb://locks?endpoint=http://127.0.0.1:8000": "region not set is invalid: must be that of the table",
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

// The address follows from region and endpoint, the table and the prefix from the URL.
func TestAddress(t *testing.T) {
	isolate(t)
	for rawURL, want := range map[string]string{
		"dynamodb://locks?region=eu-central-1":                                         "https://dynamodb.eu-central-1.amazonaws.com locks ",
		"DynamoDB://Locks_2.0/a/B/?region=us-east-1":                                   "https://dynamodb.us-east-1.amazonaws.com Locks_2.0 a/B/",
		"dynamodb://locks?region=cn-north-1":                                           "https://dynamodb.cn-north-1.amazonaws.com.cn locks ",
		"dynamodb://locks?region=us-east-1&endpoint=http://127.0.0.1:8000/":            "http://127.0.0.1:8000 locks ",
		"dynamodb://locks?region=us-east-1&endpoint=https://x.example.com:443/dynamo/": "https://x.example.com/dynamo locks ",
	} {
		l, err := Open(t.Context(), rawURL, onlyReads)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if got := l.store.at + " " + l.store.table + " " + l.store.prefix; got != want {
			t.Errorf("%s: %s, want %s", rawURL, got, want)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The SDK's configuration is used: the environment, a profile, and an endpoint for DynamoDB alone. The URL comes first.
func TestConfiguration(t *testing.T) {
	server := dynamodbtest.Start(t)
	isolate(t)
	write := func(variable, text string) {
		if err := os.WriteFile(os.Getenv(variable), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("AWS_CONFIG_FILE", "[profile ops]\nregion = "+dynamodbtest.Region+"\nservices = test\n"+
		"[services test]\ndynamodb =\n  endpoint_url = "+server.Endpoint()+"\n[profile broken]\nregion = "+dynamodbtest.Region+
		"\ncredential_process = echo "+dynamodbtest.Secret+"\n")
	write("AWS_SHARED_CREDENTIALS_FILE", "[ops]\naws_access_key_id = "+dynamodbtest.KeyID+"\naws_secret_access_key = "+
		dynamodbtest.Secret+"\n")
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
	works("a profile", "dynamodb://locks?profile=ops")
	fails("a profile that does not exist", "dynamodb://locks?profile=absent", "absent")
	fails("a process that prints no credential", "dynamodb://locks?profile=broken&endpoint="+server.Endpoint(), "run it by hand")
	fails("no credentials", "dynamodb://locks?region="+dynamodbtest.Region+"&endpoint="+server.Endpoint(), "getting credentials (of the")
	t.Setenv("AWS_ACCESS_KEY_ID", dynamodbtest.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", dynamodbtest.Secret)
	t.Setenv("AWS_REGION", dynamodbtest.Region)
	works("the environment", "dynamodb://locks/a?endpoint="+server.Endpoint())
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	works("the URL's endpoint", "dynamodb://locks/a?endpoint="+server.Endpoint())
	fails("another endpoint", "dynamodb://locks", "127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", server.Endpoint())
	works("an endpoint for DynamoDB", "dynamodb://locks")
}

// A host that does not exist is a wrong region mostly.
func TestUnknownRegion(t *testing.T) {
	t.Parallel()
	config := configFor("")
	config.BaseEndpoint, config.Region = nil, "eu-cental-1"
	config.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "dynamodb.eu-cental-1.amazonaws.com", IsNotFound: true}
	}}}
	_, err := New(t.Context(), config, "locks")
	if err == nil || !strings.Contains(err.Error(), `is "eu-cental-1" a region of AWS?`) {
		t.Errorf("got %v", err)
	}
}

// A program's own configuration is used, and stays as it is.
func TestNew(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	config := configFor(server.Endpoint())
	client := &http.Client{Transport: http.DefaultTransport}
	config.HTTPClient = client
	l, err := New(t.Context(), config, dynamodbtest.Table)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if client.Transport != http.DefaultTransport || client.CheckRedirect != nil {
		t.Error("the program's client was changed")
	}
	none := config
	none.Credentials = nil
	for what, bad := range map[string]func() (*Locker, error){
		"table":       func() (*Locker, error) { return New(t.Context(), config, "arn:aws:dynamodb:eu-test-1:1:table/locks") },
		"credentials": func() (*Locker, error) { return New(t.Context(), none, "locks") },
		"endpoint":    func() (*Locker, error) { return New(t.Context(), configFor("example.com"), "locks") },
		"region":      func() (*Locker, error) { return New(t.Context(), aws.Config{Credentials: config.Credentials}, "locks") },
		"no region": func() (*Locker, error) {
			return New(t.Context(), aws.Config{Region: "EU", Credentials: config.Credentials}, "locks")
		},
		"nil":     func() (*Locker, error) { return New(t.Context(), config, "locks", nil) },
		"history": func() (*Locker, error) { return New(t.Context(), config, "locks", WithHistory(-1)) },
		"prefix":  func() (*Locker, error) { return New(t.Context(), config, "locks", WithPrefix("/a")) },
		"logger":  func() (*Locker, error) { return New(t.Context(), config, "locks", WithLogger(nil)) },
	} {
		if _, err := bad(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
