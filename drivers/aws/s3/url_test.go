package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/awstest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// Each mistake has an error that names the field.
func TestURLErrors(t *testing.T) {
	awstest.Isolate(t)
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

// The address of a bucket follows from region, endpoint and style.
func TestAddress(t *testing.T) {
	awstest.Isolate(t)
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

func TestConfiguration(t *testing.T) {
	s3test.Start(t).CheckConfiguration(t, func(rawURL string) error {
		l, err := Open(t.Context(), rawURL)
		if err == nil {
			err = l.Close(t.Context())
		}
		return err
	})
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
	config.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "proxy.example.com", IsNotFound: true}
	}}}
	_, err = New(t.Context(), config, "locks")
	if err == nil || !strings.Contains(err.Error(), "proxy.example.com") {
		t.Errorf("of a proxy: %v", err)
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
