package nats

import (
	"cmp"
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// writeLimit is how long a write to a server that reads nothing may take.
	writeLimit = time.Second
	// maxForsaken is how many writes of a connection may be without an answer that nobody waits for any more.
	maxForsaken = 1000
)

// conn is one connection to a server, with the requests on it. A server reports a missing permission and a refused login beside the
// answers; conn fails the requests that these belong to.
type conn struct {
	nc      *natsgo.Conn
	inbox   string        // an answer has this subject, a dot and the number of its request
	sending chan struct{} // has room for the request that is sent now
	unfit   chan struct{} // says that it must be closed
	ended   chan struct{} // closed when nc has ended

	mu       sync.Mutex
	number   uint64           // of the last request
	calls    map[uint64]*call // requests without an answer, by their numbers
	forsaken int              // how many of them nobody waits for
	refused  map[string]int   // how many writes of a subject were refused, of which it is not known yet which they are
	watches  map[string]chan<- error
	why      error // why the servers do not serve this connection any more
	known    bool  // it was seen to lead to the bucket
}

// outgoing is a request that is to be sent.
type outgoing struct {
	subject string
	header  natsgo.Header
	data    []byte
	writes  bool
}

// call is a request without an answer.
type call struct {
	outgoing
	answer   chan *natsgo.Msg
	failed   chan error
	forsaken bool // nobody waits for it, but the server may still do it, or refuse it
}

// dial makes a connection with options, and finds out whether answers can arrive. An attempt has a limit of its own, because the library
// has none for a server that is silent in the TLS handshake of a WebSocket, nor for the program's own dialer and callbacks.
func dial(ctx context.Context, o natsgo.Options, timeout time.Duration, attempts chan struct{}) (*conn, error) {
	c := &conn{sending: make(chan struct{}, 1), unfit: make(chan struct{}, 1), ended: make(chan struct{}), calls: map[uint64]*call{},
		refused: map[string]int{}, watches: map[string]chan<- error{}}
	attempt, cancel := context.WithTimeout(ctx, time.Duration(len(o.Servers)+1)*2*timeout)
	defer cancel()
	d := &dialer{ctx: attempt, timeout: timeout, given: o.CustomDialer}
	if o.Dialer != nil {
		d.plain = *o.Dialer
	}
	o.CustomDialer = d
	o.SkipHostLookup = o.SkipHostLookup || d.given == nil // the context ends that of package net
	o.AsyncErrorCB = func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { c.note(err) }
	o.ClosedCB = func(*natsgo.Conn) { close(c.ended) }
	nc, err := connectWithin(attempt, o, attempts)
	d.connected()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errAbandoned):
		return nil, err
	default:
		return nil, connecting(cmp.Or(attempt.Err(), err))
	}
	c.mu.Lock() // the server may report something already
	c.nc, c.inbox = nc, nc.NewInbox()
	c.mu.Unlock()
	limited, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	if _, err = nc.Subscribe(c.answers(), c.deliver); err == nil {
		err = nc.FlushWithContext(limited)
	}
	if refused := nc.LastError(); refused != nil && violation.MatchString(refused.Error()) {
		err = missing("subscribe", inboxOf(c.answers()))
	}
	if err = cmp.Or(c.reason(), err); err != nil {
		c.close()
		return nil, cmp.Or(ctx.Err(), connecting(err))
	}
	return c, nil
}

const (
	// abandonAfter is how long a connection attempt may go on after its context. What waits for the network ends at once.
	abandonAfter = time.Second
	// maxAttempts is how many attempts of a link go on at a time. While so many hang, no other one begins.
	maxAttempts = 16
)

var errAbandoned = errors.New("a dialer or a callback of the program, which the connection needs, has not returned: it needs a time limit")

// connectWithin has the library connect until ctx ends, and waits for what the attempt has begun. The program's own dialer and callbacks,
// such as that for a signature, know nothing of ctx: an attempt in which one of them hangs is abandoned, and keeps its goroutine until that
// returns.
func connectWithin(ctx context.Context, o natsgo.Options, attempts chan struct{}) (*natsgo.Conn, error) {
	select {
	case attempts <- struct{}{}:
	case <-ctx.Done():
		return nil, errAbandoned
	}
	type result struct {
		nc  *natsgo.Conn
		err error
	}
	connected, abandoned := make(chan result), make(chan struct{})
	go func() {
		defer func() { <-attempts }()
		nc, err := o.Connect()
		select {
		case connected <- result{nc, err}:
		case <-abandoned:
			if err == nil {
				nc.Close()
			}
		}
	}()
	select {
	case r := <-connected:
		return r.nc, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-connected: // the caller ends it, if it was made
		return r.nc, r.err
	case <-time.After(abandonAfter):
		close(abandoned)
		return nil, errAbandoned
	}
}

func (c *conn) answers() string { return c.inbox + ".*" }

// close ends the connection, and waits for its goroutines.
func (c *conn) close() {
	c.nc.Close()
	<-c.ended
}

// over reports whether the connection has ended.
func (c *conn) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// reason is why the servers have ended the connection, or nil.
func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// lead notes that the connection leads to the bucket of this Locker, and leads reports whether that was noted.
func (c *conn) lead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
}

func (c *conn) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

var (
	errEnded   = errors.New("the connection to the server has ended before the answer came")
	errNotSent = errors.New("the time was over before the request could be sent")
)

// request sends a request, and returns the answer. An error that lasts says that the request was not done.
func (c *conn) request(ctx context.Context, r outgoing) (*natsgo.Msg, error) {
	select {
	case c.sending <- struct{}{}: // only one at a time waits for the library, which may write to a server that reads nothing
	case <-ctx.Done():
		return nil, errNotSent
	}
	if ctx.Err() != nil {
		<-c.sending
		return nil, errNotSent
	}
	number, one := c.add(r)
	m := natsgo.NewMsg(r.subject)
	m.Data, m.Reply = r.data, c.inbox+"."+strconv.FormatUint(number, 10)
	if r.header != nil {
		m.Header = r.header
	}
	err := c.nc.PublishMsg(m)
	<-c.sending
	if err != nil { // it was not sent, or a part of it, which ends the connection
		c.forget(number)
		return nil, err
	}
	select {
	case answer := <-one.answer:
		return answer, nil
	case err = <-one.failed:
	case <-c.ended:
		err = errEnded
	case <-ctx.Done():
		err = cmp.Or(c.doubt(r.subject), ctx.Err())
	}
	c.forsake(number)
	return nil, err
}

func (c *conn) add(r outgoing) (number uint64, one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one = &call{outgoing: r, answer: make(chan *natsgo.Msg, 1), failed: make(chan error, 1)}
	c.number++
	c.calls[c.number] = one
	return c.number, one
}

func (c *conn) forget(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(number)
}

// forsake says that nobody waits for a request. A write stays, because a refusal that comes now may be its own.
func (c *conn) forsake(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.calls[number]
	switch {
	case one == nil:
		return
	case !one.writes:
		delete(c.calls, number)
		return
	}
	one.forsaken, one.data = true, nil
	if c.forsaken++; c.forsaken > maxForsaken {
		c.end(errors.New("a server left many requests without an answer"))
	}
}

// end has the connection closed by its owner; mu is held.
func (c *conn) end(why error) {
	c.why = cmp.Or(c.why, why)
	select {
	case c.unfit <- struct{}{}:
	default:
	}
}

// remove removes a request that has been answered or refused; mu is held.
func (c *conn) remove(number uint64) *call {
	one := c.calls[number]
	if one != nil && one.forsaken {
		c.forsaken--
	}
	delete(c.calls, number)
	return one
}

// deliver takes an answer.
func (c *conn) deliver(m *natsgo.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, c.inbox+"."), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.remove(number); one != nil {
		one.answer <- m
		c.settle(one.subject)
	}
}

// listen has the refusal of a watch's subject sent to failed.
func (c *conn) listen(subject string, failed chan<- error) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[subject] = failed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, subject)
	}
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// note takes in what the server reports beside the answers.
func (c *conn) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := violation.FindStringSubmatch(err.Error())
	switch {
	case isLogin(err):
		c.end(refusedLogin(err))
	case found == nil:
	case strings.EqualFold(found[1], "publish"):
		c.refuse(found[2])
	case found[2] == c.answers():
		c.end(missing("subscribe", inboxOf(found[2])))
	default:
		if failed := c.watches[found[2]]; failed != nil {
			select {
			case failed <- missing("subscribe", inboxOf(found[2])):
			default: // it has one already
			}
		}
	}
}

// refuse takes in that the server has refused a request with a subject, and did not say which; mu is held. None that only reads has done
// anything.
func (c *conn) refuse(subject string) {
	writes := false
	for number, one := range c.calls {
		switch {
		case one.subject != subject:
		case one.writes:
			writes = true
		default:
			c.remove(number).failed <- missing("publish", subject)
		}
	}
	if writes {
		c.refused[subject]++
		c.settle(subject)
	}
}

// settle fails the writes of a subject if all that have no answer were refused; mu is held. Until then one of them may have been done.
func (c *conn) settle(subject string) {
	if c.refused[subject] == 0 {
		return
	}
	var same []uint64
	for number, one := range c.calls {
		if one.subject == subject {
			same = append(same, number)
		}
	}
	if c.refused[subject] < len(same) {
		return
	}
	delete(c.refused, subject)
	for _, number := range same {
		c.remove(number).failed <- missing("publish", subject)
	}
}

// doubt is the error of a write without an answer if it, or another of its subject, was refused.
func (c *conn) doubt(subject string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[subject] == 0 {
		return nil
	}
	return errors.New(driver.ErrorText(missing("publish", subject)) + " (this write was refused, or another one)")
}

// inboxOf is the subject for which a user needs a permission to get answers.
func inboxOf(subject string) string {
	parts := strings.Split(strings.TrimSuffix(subject, ".*"), ".")
	return strings.Join(append(parts[:len(parts)-1], ">"), ".")
}

// dialer connects. Until the library has made a connection of that, the end of ctx ends it.
type dialer struct {
	ctx     context.Context //nolint:containedctx // the library's Dial has none
	timeout time.Duration
	plain   net.Dialer
	given   natsgo.CustomDialer // the program's own, or nil

	mu    sync.Mutex
	stops []func() bool
}

// Dial implements natsgo.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	var made net.Conn
	err := d.ctx.Err()
	if err != nil { // nobody waits for the connection any more
		return nil, err
	}
	if d.given != nil {
		made, err = d.given.Dial(network, address)
	} else {
		d.plain.Timeout = d.timeout
		made, err = d.plain.DialContext(d.ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	made = unbroken{made}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = append(d.stops, context.AfterFunc(d.ctx, func() { _ = made.Close() }))
	return made, nil
}

// SkipTLSHandshake is asked by the library.
func (d *dialer) SkipTLSHandshake() bool {
	given, is := d.given.(interface{ SkipTLSHandshake() bool })
	return is && given.SkipTLSHandshake()
}

// connected says that the connection no longer depends on the context.
func (d *dialer) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
}

// unbroken ends with the first write that fails. The library would go on after a part of a message.
type unbroken struct{ net.Conn }

func (c unbroken) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}
