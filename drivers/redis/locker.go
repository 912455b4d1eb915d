package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "redis"

const (
	defaultPrefix  = "holdfast:"
	defaultTimeout = 3 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = time.Minute
	maxReplicas    = 100
	// clusterClocks is how far the clocks of a cluster's primaries may differ before renewals cost a read. Leases last for so much longer.
	clusterClocks = 50 * time.Millisecond
)

// Locker keeps locks in Redis or Valkey.
type Locker struct {
	*cas.Locker
	store *store
}

var _ driver.Checker = (*Locker)(nil)

// Option configures a Locker.
type Option func(*config)

type config struct {
	prefix    string
	named     bool // the prefix is not the default
	timeout   time.Duration
	history   int
	replicas  int // negative: as many as are known
	onlyReads bool
	cluster   bool
	oldKeys   bool
	oldKey    func(name string) string
	sent      func()
}

// WithPrefix sets what all keys and channels begin with: 1 to 100 letters, digits and :._-. The default is "holdfast:". Programs with
// the same prefix in the same database share their locks.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix, c.named = prefix, true } }

// WithCommandTimeout sets the time limit of each request, from 100 ms to 1 min. The default is 3 s. A grant waits for the replicas for
// half of it at most.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHistory sets how many past holders of a lock are kept. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithReplicas sets how many replicas a primary has. A write is safe when a majority of them and the primary has it. The default is
// the greatest number of replicas that this program has seen, or as many as the cluster knows. 0 means that nothing waits for replicas.
func WithReplicas(n int) Option { return func(c *config) { c.replicas = n } }

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9:._-]{1,100}$`)

func newConfig(opts []Option) (config, error) {
	c := config{prefix: defaultPrefix, timeout: defaultTimeout, history: driver.DefaultHistory, replicas: -1}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case !validPrefix.MatchString(c.prefix):
		return c, driver.Invalid("prefix", driver.Quote(c.prefix), "1 to 100 letters, digits and :._-")
	case c.timeout < minTimeout || c.timeout > maxTimeout:
		return c, driver.Invalid("command timeout", driver.FormatDuration(c.timeout), "from 100ms to 1m")
	case c.replicas > maxReplicas:
		return c, driver.Invalid("number of replicas", strconv.Itoa(c.replicas), "from 0 to "+strconv.Itoa(maxReplicas))
	}
	return c, driver.ValidateHistory("history", c.history)
}

// New makes a Locker with the options of a program's own *redis.Client or *redis.ClusterClient: its addresses, login and TLS. It opens
// connections of its own, so that no other use of the client delays a renewal. The client stays open until after Close. One of a
// cluster with the option ClusterSlots or NewClient is refused.
//
// Of a client for Sentinel the primary is known, but not that it has changed, nor how many replicas it has: prefer [Open].
func New(ctx context.Context, client goredis.UniversalClient, opts ...Option) (*Locker, error) {
	t, err := targetOf(client)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, t, c)
}

// target is what to connect to.
type target struct {
	options goredis.Options
	cluster []string // addresses of a cluster
	// The addresses of Sentinel, and what it asks for.
	sentinels        []string
	master           string
	sentinelUser     string
	sentinelPassword string
}

// targetOf reads the options of a client.
func targetOf(client goredis.UniversalClient) (t target, err error) {
	switch client := client.(type) {
	case *goredis.Client:
		if client != nil {
			t.options = *client.Options()
			return t, nil
		}
	case *goredis.ClusterClient:
		if client == nil {
			break
		}
		o := client.Options()
		switch {
		case o.ClusterSlots != nil:
			return t, driver.Invalid("client", "with ClusterSlots", "one of a Redis Cluster, which says itself where its keys are")
		case o.NewClient != nil && reflect.ValueOf(o.NewClient).Pointer() != reflect.ValueOf(goredis.NewClient).Pointer():
			return t, driver.Invalid("client", "with NewClient", "one whose options say how to connect")
		case len(o.Addrs) == 0:
			return t, driver.Invalid("client", "of a cluster without Addrs", "one with the addresses of some servers")
		}
		t.cluster = o.Addrs
		t.options = ofOneServer(o)
		return t, nil
	}
	return t, driver.Invalid("client", "of another kind", "a *redis.Client of one server or of Sentinel, or a *redis.ClusterClient")
}

// ofOneServer are the options of a cluster's client that a client of one server has, too. They are found by name: newer versions of
// go-redis have more of them, some of which a login needs.
func ofOneServer(cluster *goredis.ClusterOptions) (o goredis.Options) {
	from, to := reflect.ValueOf(cluster).Elem(), reflect.ValueOf(&o).Elem()
	for i := range from.NumField() {
		field := from.Type().Field(i)
		if into := to.FieldByName(field.Name); into.CanSet() && into.Type() == field.Type {
			into.Set(from.Field(i))
		}
	}
	return o
}

// clearNamed clears those of the fields that the options have: newer versions of go-redis have more of them.
func clearNamed(options any, fields ...string) {
	for _, name := range fields {
		if field := reflect.ValueOf(options).Elem().FieldByName(name); field.CanSet() {
			field.SetZero()
		}
	}
}

// open makes a Locker.
func open(ctx context.Context, t target, c config) (*Locker, error) {
	o := t.options
	c.cluster = len(t.cluster) > 0
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // the Locker repeats calls, and knows its own writes
	o.Limiter = nil   // what others do with the client must not refuse a renewal
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.timeout, c.timeout, c.timeout, c.timeout
	o.MinIdleConns, o.MaxActiveConns = 0, 0 // they are for the program's own requests
	// A cache may show an old record. A processor serves one client: another one with it panics if MaintNotificationsConfig demands it.
	clearNamed(&o, "ClientSideCache", "ClientSideCacheConfig", "PushNotificationProcessor")
	s := &store{config: c, db: o.DB, tls: o.TLSConfig != nil}
	o.OnConnect = s.checkServer(o.OnConnect)
	if o.TLSConfig != nil && o.TLSConfig.MinVersion == 0 {
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	if o.Dialer == nil {
		o.Dialer = dialer(c.timeout, o.TLSConfig)
	}
	switch {
	case !c.oldKeys:
	case c.oldKey == nil:
		return nil, connectError(driver.Invalid("WithOldKeys", "nil", "a function that returns the old key of a name"))
	case c.cluster:
		return nil, connectError(driver.Invalid("WithOldKeys", "with a Redis Cluster", "used with one primary: two keys may be on two servers"))
	default:
		s.old = newOldScripts()
	}
	s.hub = newHub(s)
	switch {
	case c.cluster:
		s.servers = newCluster(o, t.cluster, c.timeout)
	case len(t.sentinels) > 0:
		s.servers = newPrimary(o, newSentinels(t, c.timeout), s.hub.leave)
	default:
		s.servers = newPrimary(o, nil, s.hub.leave)
	}
	l := &Locker{store: s}
	config := cas.Config{
		Info: s.info(), Watch: s.hub.watch, Close: s.close, CallLimit: c.timeout,
	}
	if c.onlyReads {
		config.ProbeRounds = -1
	}
	if c.cluster {
		config.ClockStep = clusterClocks
	}
	if s.old != nil {
		config.Watch = nil // nothing reports what other programs do
	}
	var err error
	if l.Locker, err = cas.Open(ctx, s, config); err != nil {
		_ = s.close(ctx)
		return nil, err
	}
	return l, nil
}

// Capabilities has those of [cas.Locker], with the checks of this driver.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// store is a [cas.Store].
type store struct {
	servers servers
	config  config
	db      int
	tls     bool
	hub     *hub
	old     *oldScripts // nil without old keys
	calls   sync.WaitGroup

	answered atomic.Bool // a server has answered
}

func (s *store) info() driver.Info {
	info := driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten, Modes: driver.Modes{Shared: true},
		History: s.config.history}
	if s.old != nil {
		info.Modes = driver.Modes{} // other programs do not know of them
	}
	return info
}

// close ends all connections, and waits for what uses them, but not for long after the end of ctx: a dialer of the program may ignore
// that its own context has ended. Then the goroutines outlive close, until the last dial has returned.
func (s *store) close(ctx context.Context) error {
	limit, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(closeWait, over) })()
	hub, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(hub)
		s.hub.close()
	}()
	go func() {
		select { // a connection of the servers is the hub's
		case <-hub:
		case <-limit.Done():
		}
		err := s.servers.close()
		s.calls.Wait()
		<-hub
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-limit.Done():
		return errors.New("requests are still under way")
	}
}

// closeWait is how long close waits after the end of its context: it needs some time also if that has ended before.
const closeWait = time.Second
