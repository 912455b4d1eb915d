// Package httpstore is what drivers of stores that speak HTTP have in common. It makes each request once: it follows no redirect
// and repeats nothing, so that a write is done once at most. (Over HTTP/2, package net/http sends a request again that the server
// says it has not processed, or, up to Go 1.26, has broken off by PROTOCOL_ERROR.) It reads answers up to a limit, takes the store's
// clock from the header Date, notices servers whose clocks disagree, and says which answers refuse a write. Its errors show no URL, no
// header and no body, where credentials can be.
package httpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// DateStep is the step in which the header Date advances: a driver's cas.Config.ClockStep is as long at least.
const DateStep = time.Second

// MaxDateAge is how much later it may be than the header Date of an answer says, where servers are not known to make it for each answer:
// some, such as versitygw, make it anew only after a second and a little more. It is the ClockStep of their drivers.
const MaxDateAge = 2 * DateStep

// Client makes requests. The program's http.Client brings TLS, the proxy and the credentials.
type Client struct {
	http  http.Client
	limit int64
}

// New makes a Client over a copy of an http.Client. limit is the longest body of an answer, in bytes. The time limit of a request
// is its context's alone.
func New(client *http.Client, limit int64) *Client {
	c := &Client{http: *client, limit: limit}
	c.http.Timeout, c.http.Jar = 0, nil
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// Request is what is sent.
type Request struct {
	Method, URL string
	Header      http.Header
	Body        []byte
}

// Answer is what came back. The trailers are those that came after the body, of HTTP/2.
type Answer struct {
	Status  int
	Header  http.Header
	Body    []byte
	Trailer http.Header
}

// Send makes a request. An error means that it is unknown what the store did. When ctx has ended the error matches that of ctx, with what
// the transport says of it, such as who is silent.
func (c *Client) Send(ctx context.Context, r Request) (Answer, error) {
	resp, err := c.Open(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := Answer{Status: resp.StatusCode, Header: resp.Header}
	answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, c.limit+1))
	answer.Trailer = resp.Trailer
	switch {
	case err != nil:
		return answer, c.failed(ctx, err)
	case int64(len(answer.Body)) > c.limit:
		return answer, fmt.Errorf("the answer is longer than %d bytes", c.limit)
	}
	return answer, nil
}

// Open makes a request and returns when the header of the answer has come. It is for an answer that goes on, such as a watch. The
// caller closes the body, whose reads end with ctx.
func (c *Client) Open(ctx context.Context, r Request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the store's URL is malformed")
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return resp, nil
}

// failed is the error of a request without an answer. That of package net/http shows the URL, whose parameters may be a signature.
func (c *Client) failed(ctx context.Context, err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	// The cause of a context's end may be the loss of another lock, which says nothing of this request.
	if end := ctx.Err(); end != nil && (!errors.Is(err, end) || driver.OutcomeKnown(err)) {
		return fmt.Errorf("%w (%s)", end, driver.ErrorText(err))
	}
	return err
}

// Now is the store's clock, in steps of [DateStep]. It is zero without a header Date.
func (a Answer) Now() time.Time {
	now, err := http.ParseTime(a.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return now
}

// Done reports whether the store did what was asked.
func (a Answer) Done() bool { return a.Status/100 == 2 }

// Missing reports whether there is nothing at the URL.
func (a Answer) Missing() bool { return a.Status == http.StatusNotFound }

// Refused reports whether a conditional write was not done, because the value has another version or there is none: a driver
// returns cas.ErrConflict. Stores answer 412, 409 and, without a value, 404.
func (a Answer) Refused() bool {
	return a.Missing() || a.Status == http.StatusConflict || a.Status == http.StatusPreconditionFailed
}

// Failed is the error for any other answer. It matches [driver.ErrDenied] if the store has refused the request, has changed
// nothing, and will refuse it again. message is what the store says about it, without secrets, or empty.
func (a Answer) Failed(message string) error {
	text := fmt.Sprintf("the store answered %d", a.Status)
	if name := http.StatusText(a.Status); name != "" {
		text += " " + name
	}
	if message != "" {
		text += ": " + Brief(message)
	}
	if a.Lasting() {
		return driver.Denied(errors.New(text))
	}
	return errors.New(text)
}

// maxMessage is how much of a store's message an error shows.
const maxMessage = 300

// Brief is a message in one line that is short enough for a log.
func Brief(message string) string {
	message = strings.ToValidUTF8(strings.Join(strings.Fields(message), " "), "")
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}

// Lasting reports whether the store will refuse the same request again until a person changes something: the credential, the rights
// or the request itself.
func (a Answer) Lasting() bool {
	switch a.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
