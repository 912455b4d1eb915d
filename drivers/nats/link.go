package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/retry"
)

const (
	redialWait = 200 * time.Millisecond
	// deniedWait is the wait after an error that lasts, such as a refused login.
	deniedWait = 2 * time.Second
	// shortLife is how long a connection lasts at least. After a shorter one the next is made as after a failure: something between this
	// program and the server, such as a proxy, may close each of them.
	shortLife = time.Second
)

// link keeps a connection for a Locker: when one has ended, it makes another one. The client library's own way to do so would hold, while
// it dials, the lock that each call needs, and ends for good after an error that it does not know.
type link struct {
	options natsgo.Options
	settings
	attempts chan struct{} // has one for each connection attempt that goes on

	ctx  context.Context //nolint:containedctx // ends with the link
	stop context.CancelFunc
	done chan struct{} // closed when keep has ended

	mu      sync.Mutex
	conn    *conn         // nil while there is none
	why     error         // why there is none
	changed chan struct{} // closed when conn or why has changed
}

// connect makes the first connection within ctx. It keeps of the options what says where to connect, and as whom.
func connect(ctx context.Context, o natsgo.Options, c settings) (*link, error) {
	o.AllowReconnect, o.RetryOnFailedConnect = false, false
	// A connection that has died silently ends within two intervals.
	o.PingInterval, o.MaxPingsOut = c.timeout, 1
	o.Timeout, o.FlusherTimeout = c.timeout, min(c.timeout, writeLimit)
	o.NoEcho, o.Pedantic, o.Verbose, o.NoCallbacksAfterClientClose = false, false, false, false
	o.ConnectedCB, o.DisconnectedCB, o.DisconnectedErrCB, o.ReconnectedCB = nil, nil, nil, nil
	o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil
	if c.inbox != "" {
		o.InboxPrefix = c.inbox
	}
	l := &link{options: o, settings: c, attempts: make(chan struct{}, maxAttempts), done: make(chan struct{}), changed: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	first, err := l.dial(ctx)
	if err != nil {
		l.stop()
		return nil, err
	}
	l.set(first, nil)
	go l.keep(first)
	return l, nil
}

// dial makes a connection.
func (l *link) dial(ctx context.Context) (*conn, error) {
	c, err := dial(ctx, l.options, l.timeout, l.attempts)
	if err != nil {
		return nil, err
	}
	switch cluster := c.nc.ConnectedClusterName() != ""; {
	case cluster && !atLeast(c.nc.ConnectedServerVersion(), oldestInCluster):
		err = errOldCluster
	case !cluster && len(l.servers()) > 1:
		err = errNoCluster
	default:
		return c, nil
	}
	c.close()
	return nil, err
}

// servers are those that the options name.
func (l *link) servers() []string {
	all := slices.DeleteFunc(append(slices.Clone(l.options.Servers), l.options.Url), func(s string) bool { return s == "" })
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// errNoCluster: what one of them stores, another one does not have.
var errNoCluster = driver.Denied(errors.New("several servers are named, and the one that was reached belongs to no cluster: each would " +
	"have locks of its own. Name one server, or give all of them one cluster { name: … }"))

// keep makes a connection again whenever it has ended.
func (l *link) keep(c *conn) {
	defer close(l.done)
	for {
		made := time.Now()
		select {
		case <-c.ended:
		case <-c.unfit:
		case <-l.ctx.Done():
			c.close()
			return
		}
		l.set(nil, passing(c.reason()))
		c.close()
		var wait time.Duration
		if time.Since(made) < shortLife {
			wait = redialWait
		}
		for {
			if wait > 0 && !retry.Wait(l.ctx, wait/2+rand.N(wait)) {
				return
			}
			next, err := l.dial(l.ctx)
			if err == nil {
				c = next
				break
			}
			l.set(nil, err)
			if wait = redialWait; driver.Lasting(err) {
				wait = deniedWait
			}
		}
		l.set(c, nil)
	}
}

// passing is the reason why a connection was ended. It does not last: the next one may log in with a credential that has been renewed.
func passing(why error) error {
	if why == nil {
		return nil
	}
	return errors.New(driver.ErrorText(why))
}

func (l *link) set(c *conn, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.why = c, why
	close(l.changed)
	l.changed = make(chan struct{})
}

// present returns the connection, or nil and why there is none. changed is closed when that is out of date.
func (l *link) present() (c *conn, changed <-chan struct{}, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn, l.changed, l.why
}

// use returns the connection, and waits for one within the time limit of a request. So nothing waits for the library, and nothing is sent,
// while there is none.
func (l *link) use(ctx context.Context) (*conn, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for {
		c, changed, why := l.present()
		switch {
		case l.closed():
			return nil, driver.ErrClosed
		case c != nil && !c.over():
			return c, nil
		case driver.Lasting(why):
			return nil, why
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-limited.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, noConnection(why)
		}
	}
}

// closed reports whether close was called.
func (l *link) closed() bool { return l.ctx.Err() != nil }

// close ends the connection, and waits for its goroutines and the link's.
func (l *link) close() {
	l.stop()
	<-l.done
}

// request makes one request on a connection, within the time limit.
func (l *link) request(ctx context.Context, c *conn, r outgoing) (*natsgo.Msg, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if l.sent != nil {
		l.sent()
	}
	answer, err := c.request(limited, r)
	switch {
	case err == nil && len(answer.Data) == 0 && answer.Header.Get("Status") == "503":
		return nil, errNoResponders
	case err == nil:
		return answer, nil
	case driver.Lasting(err):
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, l.unanswered(c, r, err)
}
