package dynamodb

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/awstest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// Each mistake has an error that names the field.
func TestURLErrors(t *testing.T) {
	awstest.Isolate(t)
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

// The address follows from region and endpoint, the table and the prefix from the URL.
func TestAddress(t *testing.T) {
	awstest.Isolate(t)
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
		if got := l.store.URL + " " + l.store.Name + " " + l.store.prefix; got != want {
			t.Errorf("%s: %s, want %s", rawURL, got, want)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	dynamodbtest.Start(t).CheckConfiguration(t, func(rawURL string) error {
		l, err := Open(t.Context(), rawURL)
		if err == nil {
			err = l.Close(t.Context())
		}
		return err
	})
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
	config.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "proxy.example.com", IsNotFound: true}
	}}}
	_, err = New(t.Context(), config, "locks")
	if err == nil || !strings.Contains(err.Error(), "proxy.example.com") {
		t.Errorf("of a proxy: %v", err)
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
