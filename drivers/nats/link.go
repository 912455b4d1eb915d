package nats

import (
	"cmp"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	reconnectWait   = 200 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
	// inboxRetry is how often the connection is made again while answers do not arrive for want of a permission: the server has ended the
	// subscription for them, and does not say when it would be allowed again.
	inboxRetry = 2 * time.Second
)

// link is the connection of a Locker. A server reports a missing permission and a refused login beside the answers; link fails the requests
// that these belong to.
type link struct {
	conn    *natsgo.Conn
	timeout time.Duration
	sent    func()
	closed  chan struct{} // closed when conn has ended, with its goroutines

	mu      sync.Mutex
	calls   map[*call]struct{}
	refused error         // why the servers refuse the login, or nil
	noInbox error         // why answers do not arrive, or nil
	retried time.Time     // when the connection was last made again because of that
	again   chan struct{} // closed when the connection was made again
}

// call is a request under way.
type call struct {
	subject string
	fail    context.CancelCauseFunc
}

// connect makes a connection. It keeps of the options what says where to connect, and as whom.
func connect(ctx context.Context, o natsgo.Options, c settings) (*link, error) {
	l := &link{timeout: c.timeout, sent: c.sent, closed: make(chan struct{}), calls: map[*call]struct{}{}, again: make(chan struct{})}
	first := &dialer{timeout: c.timeout, ctx: ctx}
	if o.CustomDialer == nil {
		o.CustomDialer = first
	}
	if c.inbox != "" {
		o.InboxPrefix = c.inbox
	}
	o.AllowReconnect, o.MaxReconnect, o.RetryOnFailedConnect = true, -1, false
	o.ReconnectWait, o.ReconnectJitter, o.ReconnectJitterTLS, o.CustomReconnectDelayCB = reconnectWait, reconnectJitter, reconnectJitter, nil
	o.ReconnectBufSize = -1 // what is written while there is no connection fails, and is not sent late
	// A connection that has died silently is noticed within two intervals.
	o.PingInterval, o.MaxPingsOut = c.timeout, 1
	o.Timeout, o.FlusherTimeout = c.timeout, c.timeout
	o.IgnoreAuthErrorAbort = true // a login may be refused only for some time
	o.NoEcho, o.UseOldRequestStyle, o.Pedantic, o.Verbose = false, false, false, false
	o.AsyncErrorCB = func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { l.note(err) }
	o.ReconnectedCB = func(*natsgo.Conn) { l.reconnected() }
	o.ClosedCB = func(*natsgo.Conn) { close(l.closed) }
	o.ConnectedCB, o.DisconnectedCB, o.DisconnectedErrCB, o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil, nil, nil, nil
	conn, err := o.Connect()
	first.connected()
	switch {
	case err == nil:
		l.conn = conn
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, connecting(err)
}

// close ends the connection, and waits for its goroutines.
func (l *link) close() {
	l.conn.Close()
	<-l.closed
}

// dialer connects, until the first connection is made within a context.
type dialer struct {
	timeout time.Duration

	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // that of Open; nil when Open is done
	stops []func() bool
}

// Dial implements natsgo.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.ctx
	d.mu.Unlock()
	if ctx == nil {
		return net.DialTimeout(network, address, d.timeout) //nolint:noctx // the time limit ends it
	}
	conn, err := (&net.Dialer{Timeout: d.timeout}).DialContext(ctx, network, address)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		d.mu.Lock()
		d.stops = append(d.stops, stop)
		d.mu.Unlock()
	}
	return conn, err
}

// connected says that the connections no longer depend on the context.
func (d *dialer) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
	d.ctx, d.stops = nil, nil
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// note takes in what the server reports beside the answers.
func (l *link) note(err error) {
	found := violation.FindStringSubmatch(err.Error())
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case isLogin(err):
		l.refused = refusedLogin(err)
		for c := range l.calls {
			c.fail(l.refused)
		}
	case found == nil:
	case strings.EqualFold(found[1], "publish"):
		for c := range l.calls {
			if c.subject == found[2] {
				c.fail(missing("publish", found[2]))
			}
		}
	default:
		denied := missing("subscribe", inboxOf(found[2]))
		if strings.HasSuffix(found[2], ".*") { // the subscription for the answers to all requests
			l.noInbox = denied
		}
		for c := range l.calls {
			c.fail(denied)
		}
	}
}

// inboxOf is the subject for which a user needs a permission to get answers.
func inboxOf(subject string) string {
	parts := strings.Split(strings.TrimSuffix(subject, ".*"), ".")
	return strings.Join(append(parts[:len(parts)-1], ">"), ".")
}

// reconnected forgets what was true of the connection before: the server reports it anew.
func (l *link) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.noInbox = nil, nil
	close(l.again)
	l.again = make(chan struct{})
}

// remade is closed when the connection was made again.
func (l *link) remade() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// why is why the servers do not serve this program, or nil.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.refused, l.noInbox)
}

// request makes one request within the time limit.
func (l *link) request(ctx context.Context, m *natsgo.Msg) (*natsgo.Msg, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	failing, fail := context.WithCancelCause(limited)
	defer fail(nil)
	c := &call{m.Subject, fail}
	l.mu.Lock()
	denied := cmp.Or(l.refused, l.noInbox)
	again := l.noInbox != nil && time.Since(l.retried) > inboxRetry
	if again {
		l.retried = time.Now()
	}
	l.calls[c] = struct{}{}
	l.mu.Unlock()
	if again {
		_ = l.conn.ForceReconnect()
	}
	defer func() {
		l.mu.Lock()
		delete(l.calls, c)
		l.mu.Unlock()
	}()
	if denied != nil {
		return nil, denied
	}
	if l.sent != nil {
		l.sent()
	}
	answer, err := l.send(failing, m)
	switch {
	case err == nil:
		return answer, nil
	case driver.Lasting(context.Cause(failing)):
		return nil, context.Cause(failing)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, l.unanswered(m.Subject, err)
}

// send sends a request, as soon as there is a connection, and returns the answer.
func (l *link) send(ctx context.Context, m *natsgo.Msg) (*natsgo.Msg, error) {
	for {
		remade := l.remade()
		answer, err := l.conn.RequestMsgWithContext(ctx, m)
		if !errors.Is(err, natsgo.ErrReconnectBufExceeded) {
			return answer, err
		}
		select { // nothing was sent
		case <-remade:
		case <-ctx.Done():
			return nil, err
		}
	}
}
