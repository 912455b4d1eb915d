package request

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

const (
	keyID, secret, token = "AKIATHEKEY", "the-secret-key", "the-session-token"
)

func static(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: keyID, SecretAccessKey: secret, SessionToken: token}, nil
}

func client(t *testing.T, config aws.Config) *Client {
	t.Helper()
	if config.Credentials == nil {
		config.Credentials = aws.CredentialsProviderFunc(static)
	}
	c, err := New(config, "s3", "eu-test-1", httpstore.NewClocks(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A request is signed with its body, its conditions and the session token, and its own header stays as it is. What a store repeats of
// the credential in a refusal is taken out.
func TestSend(t *testing.T) {
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, string(text)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "no "+keyID+" "+secret+" "+token)
	}))
	t.Cleanup(server.Close)
	header := http.Header{"If-Match": {`"1"`}}
	answer, err := client(t, aws.Config{}).Send(t.Context(), httpstore.Request{Method: http.MethodPut, URL: server.URL + "/b/%2541",
		Header: header, Body: []byte("value")})
	if err != nil || answer.Status != http.StatusTeapot || string(answer.Body) != "no (not shown) (not shown) (not shown)" {
		t.Fatalf("%d %s, %v", answer.Status, answer.Body, err)
	}
	signed := got.Header.Get("Authorization")
	for _, want := range []string{"AWS4-HMAC-SHA256 Credential=" + keyID + "/", "/eu-test-1/s3/aws4_request", "host;", "if-match;",
		"x-amz-content-sha256;", "x-amz-date;", "x-amz-security-token"} {
		if !strings.Contains(signed, want) {
			t.Errorf("%q is not signed: %s", want, signed)
		}
	}
	if got.RequestURI != "/b/%2541" || body != "value" || got.Header.Get("X-Amz-Security-Token") != token || len(header) != 1 {
		t.Errorf("%s %q %v", got.RequestURI, body, header)
	}
}

// No error about credentials shows one, wherever the SDK has put it, and one that hangs ends with the context.
func TestCredentialErrors(t *testing.T) {
	for want, err := range map[string]error{
		"run it by hand":      &processcreds.ProviderError{Err: fmt.Errorf("parse failed of process output: %s", secret)},
		"(address not shown)": fmt.Errorf("sso: %w", &url.Error{Op: "Get", URL: "http://h/?token=" + secret, Err: errors.New("refused")}),
		"two lines":           errors.New("two\n  lines"),
	} {
		c := client(t, aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, err
		})})
		_, err := c.Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: "http://127.0.0.1:1"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	hang := make(chan struct{})
	defer close(hang)
	c := client(t, aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		<-hang
		return aws.Credentials{}, errors.New("late")
	})})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Send(ctx, httpstore.Request{URL: "http://127.0.0.1:1"}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "credentials") {
		t.Errorf("got %v", err)
	}
}

// A provider is asked once, and not for each request.
func TestCredentialsAreCached(t *testing.T) {
	asked := 0
	once := aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) { asked++; return static(ctx) })
	for _, provider := range []aws.CredentialsProvider{once, aws.NewCredentialsCache(once)} {
		asked = 0
		c := client(t, aws.Config{Credentials: provider})
		for range 3 {
			_, _ = c.Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: "http://127.0.0.1:1"})
		}
		if asked != 1 {
			t.Errorf("%T: asked %d times", provider, asked)
		}
	}
}

// A key as short as those of servers for tests occurs in what answers say: it is not cut out.
func TestShortKeys(t *testing.T) {
	const says = "ConditionalCheckFailedException: x"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, says, http.StatusBadRequest) }))
	t.Cleanup(server.Close)
	c := client(t, aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "Check"}, nil
	})})
	answer, err := c.Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: server.URL})
	if err != nil || !strings.Contains(string(answer.Body), says) {
		t.Errorf("%q, %v", answer.Body, err)
	}
}

// Credentials that the service calls expired are asked for again, also if their provider does not know when they expire, such as a
// credential_process. Then it is not certain that there are others.
func TestExpiredCredentials(t *testing.T) {
	const want = 2
	for _, renewable := range []bool{true, false} {
		asked := 0
		c := client(t, aws.Config{Credentials: aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			asked++
			found, err := static(ctx)
			found.CanExpire, found.Expires = renewable, time.Now().Add(time.Hour)
			return found, err
		})})
		for range 2 {
			_, _ = c.Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: "http://127.0.0.1:1"})
			if got := c.Expired(); got != renewable {
				t.Errorf("renewed: %v, want %v", got, renewable)
			}
		}
		if asked != want {
			t.Errorf("asked %d times, want %d", asked, want)
		}
	}
}

// mortal is a connection that can die without a word, as one that a router has forgotten.
type mortal struct {
	net.Conn
	born   int32
	killed *atomic.Int32
	closed chan struct{}
	once   *sync.Once
}

func (c mortal) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.killed.Load() > c.born {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c mortal) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Connections that have all died silently cost one request its time limit, and not each of them one.
func TestDeadConnections(t *testing.T) {
	const conns = 8
	var waiting sync.WaitGroup
	waiting.Add(conns)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/together" {
			waiting.Done()
			waiting.Wait() // so that each has a connection of its own
		}
	}))
	t.Cleanup(server.Close)
	killed := &atomic.Int32{}
	c := client(t, aws.Config{HTTPClient: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return mortal{conn, killed.Load(), killed, make(chan struct{}), &sync.Once{}}, nil
		}}}})
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			if _, err := c.Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: server.URL + "/together"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	killed.Add(1) // those that there are
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Send(ctx, httpstore.Request{Method: http.MethodGet, URL: server.URL}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("through a dead connection: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Send(ctx, httpstore.Request{Method: http.MethodGet, URL: server.URL}); err != nil {
		t.Errorf("after dead connections: %v", err)
	}
}

// Requests use HTTP/1.1 also through a transport that knows more, on connections of their own. A client of which nobody knows what it
// repeats is refused.
func TestTransport(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	trusting := &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	used := &http.Transport{TLSClientConfig: trusting.Clone(), ForceAttemptHTTP2: true}
	t.Cleanup(used.CloseIdleConnections)
	get := func(do func() (string, error)) string {
		t.Helper()
		text, err := do()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if proto := get(func() (string, error) {
		resp, err := (&http.Client{Transport: used}).Get(server.URL)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.Proto, nil
	}); proto != "HTTP/2.0" {
		t.Fatalf("the program uses %s", proto)
	}
	both := &http.Transport{TLSClientConfig: trusting.Clone(), Protocols: new(http.Protocols)}
	both.Protocols.SetHTTP1(true)
	both.Protocols.SetHTTP2(true)
	for what, c := range map[string]aws.HTTPClient{
		"http.Client":     &http.Client{Transport: used, Timeout: time.Nanosecond},
		"BuildableClient": awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.TLSClientConfig = trusting.Clone() }),
		"with protocols":  &http.Client{Transport: both},
		"round tripper":   &http.Client{Transport: only1{&http.Transport{TLSClientConfig: trusting.Clone()}}},
	} {
		proto := get(func() (string, error) {
			answer, err := client(t, aws.Config{HTTPClient: c}).Send(t.Context(), httpstore.Request{Method: http.MethodGet, URL: server.URL})
			return string(answer.Body), err
		})
		if proto != "HTTP/1.1" {
			t.Errorf("%s: %s", what, proto)
		}
	}
	if !slices.Contains(used.TLSClientConfig.NextProtos, "h2") || used.DisableCompression {
		t.Errorf("the program's transport was changed: %v", used.TLSClientConfig.NextProtos)
	}
	_, err := New(aws.Config{HTTPClient: doer{}, Credentials: aws.CredentialsProviderFunc(static)}, "s3", "r", httpstore.NewClocks(nil), nil)
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another client: %v", err)
	}
}

// only1 is a transport of the program's own.
type only1 struct{ *http.Transport }

type doer struct{}

func (doer) Do(*http.Request) (*http.Response, error) { return nil, errors.New("not called") }
