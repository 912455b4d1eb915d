// Package request sends signed requests to a service of AWS, or to a store that speaks the same protocol. It has what every such driver
// needs: the configuration, the credentials, the signature, and one request that is made once. No error of it shows a credential, a
// signature or a URL.
package request

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

const (
	// maxAnswer bounds an answer. A page of a list has a thousand keys, of a KiB each at most.
	maxAnswer = 8 << 20
	// maxIdle is how many idle connections are kept. With more requests at a time each of the others costs a handshake.
	maxIdle = 32
	// minSecret is how long a part of a credential must be to be hidden in answers. Shorter ones, as servers for tests have them, occur in
	// what answers say.
	minSecret = 8
)

// Client signs and sends requests. Its methods are safe for concurrent use.
type Client struct {
	// Clocks compares the times of the answers.
	Clocks *httpstore.Clocks

	requests        *httpstore.Client
	credentials     aws.CredentialsProvider
	signer          *v4.Signer
	service, region string
	sent            func()
	closeIdle       func()
	renewable       atomic.Bool // the latest credentials expire, and their provider has others then
}

// New makes a Client for a service, such as "s3". It changes nothing in the configuration. Connections are its own, unless the
// program's http.Client has a transport of another type than http.Transport. sent, if not nil, is called for each request.
func New(config aws.Config, service, region string, clocks *httpstore.Clocks, sent func()) (*Client, error) {
	if config.Credentials == nil {
		return nil, driver.Invalid("config.Credentials", "nil", "a provider of credentials, such as config.LoadDefaultConfig sets")
	}
	transport, closeIdle, err := transportOf(config.HTTPClient)
	if err != nil {
		return nil, err
	}
	if sent == nil {
		sent = func() {}
	}
	return &Client{
		Clocks:      clocks,
		requests:    httpstore.New(&http.Client{Transport: transport}, maxAnswer),
		credentials: cached(config.Credentials),
		// S3 takes paths as they are sent. Other services have the path "/" only.
		signer:  v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		service: service, region: region, sent: sent, closeIdle: closeIdle,
	}, nil
}

// cached keeps credentials until they expire, and makes a request end with its context although a provider hangs.
func cached(provider aws.CredentialsProvider) aws.CredentialsProvider {
	if _, is := provider.(*aws.CredentialsCache); is {
		return provider
	}
	return aws.NewCredentialsCache(provider)
}

// Expired notes that the service has called the credentials expired, and reports whether the next request has others. The cache would keep
// them for as long as this machine's clock is behind the service's, and forever if their provider does not know when they expire: a
// credential_process may print others then, but the environment has the same for as long as the program runs.
func (c *Client) Expired() (renewed bool) {
	cache, is := c.credentials.(*aws.CredentialsCache)
	if is {
		cache.Invalidate()
	}
	return is && c.renewable.Load()
}

// Close closes the connections. No request is under way.
func (c *Client) Close() { c.closeIdle() }

// getting is what fails without credentials. The SDK asks the machine last, which takes seconds where there is none of AWS.
const getting = "getting credentials (of the environment, a profile, web identity, the container, the machine)"

// Send signs a request and makes it once. An error means that it is unknown what the service did.
func (c *Client) Send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	credentials, err := c.credentials.Retrieve(ctx)
	switch {
	case ctx.Err() != nil:
		return httpstore.Answer{}, fmt.Errorf("%s: %w", getting, ctx.Err())
	case err != nil:
		return httpstore.Answer{}, errors.New(getting + ": " + reason(err))
	}
	c.renewable.Store(credentials.CanExpire)
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return httpstore.Answer{}, errors.New("the store's URL is malformed")
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	sum := sha256.Sum256(r.Body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("User-Agent", "holdfast")
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if err := c.signer.SignHTTP(ctx, credentials, req, hash, c.service, c.region, time.Now()); err != nil {
		return httpstore.Answer{}, errors.New("the request cannot be signed")
	}
	r.Header = req.Header
	began := c.Clocks.Elapsed()
	c.sent()
	answer, err := c.requests.Send(ctx, r)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// What has cut this connection has perhaps cut the idle ones too, of which each would take as long to find out.
			c.closeIdle()
		}
		return answer, err
	}
	c.Clocks.Note(answer.Now(), began)
	if !answer.Done() { // stores repeat parts of the credential in what they say
		for _, secret := range []string{credentials.AccessKeyID, credentials.SecretAccessKey, credentials.SessionToken} {
			if len(secret) >= minSecret {
				answer.Body = bytes.ReplaceAll(answer.Body, []byte(secret), []byte("(not shown)"))
			}
		}
	}
	return answer, nil
}

// transportOf makes the transport of requests. They use HTTP/1.1: on a connection of HTTP/2 that has died silently all of them would
// hang together.
func transportOf(client aws.HTTPClient) (transport http.RoundTripper, closeIdle func(), err error) {
	var own *http.Transport
	switch c := client.(type) {
	case nil:
		own = awshttp.NewBuildableClient().GetTransport()
	case *awshttp.BuildableClient:
		own = c.GetTransport()
	case *http.Client:
		used := c.Transport
		if used == nil {
			used = http.DefaultTransport
		}
		t, is := used.(*http.Transport)
		if !is {
			return used, func() {}, nil
		}
		own = t.Clone()
	default: // it may follow redirects and repeat requests
		return nil, nil, driver.Invalid("config.HTTPClient", fmt.Sprintf("%T", client), "nil, an *http.Client or a *BuildableClient of the SDK")
	}
	own.MaxIdleConnsPerHost = max(own.MaxIdleConnsPerHost, maxIdle)
	own.DisableCompression = true
	own.ForceAttemptHTTP2 = false
	own.Protocols = new(http.Protocols)
	own.Protocols.SetHTTP1(true)
	own.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // package net/http: no HTTP/2
	if own.TLSClientConfig != nil {
		own.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return own, own.CloseIdleConnections, nil
}
