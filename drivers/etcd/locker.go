package etcd

import (
	"context"
	"crypto/tls"
	"regexp"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "etcd"

const (
	defaultPrefix  = "holdfast"
	maxPrefix      = 200
	defaultTimeout = 3 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = time.Minute

	// maxRequests is how many requests are under way at a time.
	maxRequests = 32
	// maxStreams is how many keys are watched at a time. Their streams and the requests share a connection, on which a member with TLS
	// allows 250.
	maxStreams = 200
	// maxAnswer bounds an answer: that about a page of a list.
	maxAnswer = 64 << 20
)

// Config says how to reach a cluster. Its fields are those of the same names in the Config of etcd's own client.
type Config struct {
	// Endpoints are the addresses of members for clients, such as https://etcd1:2379. One without http:// or https:// has TLS if the field
	// TLS is set.
	Endpoints []string
	// TLS, if not nil, is used for https.
	TLS *tls.Config
	// Username and Password are the login of a cluster with authentication.
	Username, Password string
}

type settings struct {
	prefix  string
	timeout time.Duration
	history int
	// rounds is how often Open races conditional writes. A negative number is for a Locker that only reads.
	rounds int
	sent   func()                    // called for each request, if not nil
	wrap   func(cas.Store) cas.Store // makes the store of a test fail, if not nil
}

// Option sets up a Locker.
type Option func(*settings)

// WithPrefix sets what keys begin with, without the "/" at its end: letters, digits and ._- in parts that "/" separates. The default is
// "holdfast". Programs with the same prefix in the same cluster share their locks.
func WithPrefix(prefix string) Option { return func(c *settings) { c.prefix = prefix } }

// WithRequestTimeout sets the time limit of each request to a member, from 100 ms to 1 min. The default is 3 s.
func WithRequestTimeout(d time.Duration) Option { return func(c *settings) { c.timeout = d } }

// WithHistory sets how many past holders are kept with a lock: 0 to [driver.MaxHistory]. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

func onlyReads(c *settings) { c.rounds = -1 }

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

func newSettings(opts []Option) (settings, error) {
	c := settings{prefix: defaultPrefix, timeout: defaultTimeout, history: driver.DefaultHistory}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case len(c.prefix) > maxPrefix || !validPrefix.MatchString(c.prefix):
		return c, driver.Invalid("prefix", driver.QuoteName(c.prefix), "1 to 200 letters, digits and ._-, in parts that / separates, "+
			"such as team/locks")
	case c.timeout < minTimeout || c.timeout > maxTimeout:
		return c, driver.Invalid("request timeout", driver.FormatDuration(c.timeout), "from 100ms to 1m")
	}
	return c, driver.ValidateHistory("history", c.history)
}

// Locker is a [driver.Locker] that keeps locks in etcd. [cas.Locker] describes its methods.
type Locker struct {
	*cas.Locker
	store *store
}

var _ driver.Checker = (*Locker)(nil)

// New makes a Locker on the cluster that a program's own client of etcd uses. It opens connections of its own, without a proxy. It tries
// a few conditional writes; see [cas.Open].
func New(ctx context.Context, config Config, opts ...Option) (*Locker, error) {
	t, err := targetOf(config)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newSettings(opts)
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, t, c)
}

// target is what to connect to.
type target struct {
	members            []*member
	tls                *tls.Config // a copy, or nil
	username, password string
}

// open makes a Locker.
func open(ctx context.Context, t target, c settings) (*Locker, error) {
	s := newStore(t, c)
	var used cas.Store = s
	if c.wrap != nil {
		used = c.wrap(s)
	}
	if c.rounds >= 0 { // else nothing is sent
		if err := s.compareClusters(ctx); err != nil {
			_ = s.close(ctx)
			return nil, connectError(err)
		}
	}
	inner, err := cas.Open(ctx, used, cas.Config{
		Info: s.info(), Watch: s.watch, Close: s.close, ProbeRounds: c.rounds,
		CallLimit: 2 * c.timeout, // a read is also tried at a second member
	})
	if err != nil {
		_ = s.close(ctx)
		return nil, err
	}
	return &Locker{inner, s}, nil
}

// Capabilities are those of the [cas.Locker], with a Checker of its own.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// store is a [cas.Store].
type store struct {
	settings
	members *members
	login   *login        // nil without one
	slots   chan struct{} // a place for each request under way
	streams chan struct{} // a place for each key that is watched
}

func newStore(t target, c settings) *store {
	patience := c.timeout
	if len(t.members) > 1 {
		patience /= 3 // so that there is time to try the next one
	}
	connect := func() *connections { return newConnections(t.tls, patience, c.timeout) }
	s := &store{settings: c, members: newMembers(t.members, connect), slots: make(chan struct{}, maxRequests),
		streams: make(chan struct{}, maxStreams)}
	if t.username != "" {
		s.login = &login{name: t.username, password: t.password}
	}
	return s
}

// info declares what the cluster promises: an acknowledged write is on the disks of a majority.
func (s *store) info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByObservation, Failover: driver.GrantsSurvive, History: s.history}
}

// close ends the connections.
func (s *store) close(context.Context) error {
	s.members.close()
	return nil
}
