package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// slots is how many parts the keys of a cluster have.
const slots = 1 << 14

// loadPause is the shortest time between two requests for the layout of a cluster.
const loadPause = 200 * time.Millisecond

// cluster is a Redis Cluster. A lock is one key, so one primary has it. The client of go-redis would send the request that waits for the
// replicas to another server than the write.
type cluster struct {
	options goredis.Options
	seeds   []string
	timeout time.Duration

	work     sync.WaitGroup
	mu       sync.Mutex
	clients  map[string]*goredis.Client // by address
	replicas map[string]*replicaCount   // of each primary, by its address
	layout   *layout                    // nil at first
	stale    bool                       // an answer says that the layout has changed
	loading  *load
	failedAt map[string]time.Time // when a server gave no layout, unless it has since
	closed   bool
	ctx      context.Context //nolint:containedctx // close ends it
	stop     context.CancelFunc
}

// layout says which primary has which keys.
type layout struct {
	owners    [slots]string
	primaries []string
	text      string
	at        time.Time
	ids       map[string]string // the addresses of the primaries, by ID
	nodes     map[string]node
	shards    shards
}

// load is a request for the layout.
type load struct {
	done   chan struct{}
	layout *layout
	err    error
}

func (l *load) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newCluster(o goredis.Options, seeds []string, timeout time.Duration) *cluster {
	c := &cluster{options: o, seeds: seeds, timeout: timeout, clients: map[string]*goredis.Client{}, replicas: map[string]*replicaCount{},
		failedAt: map[string]time.Time{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// client returns the client of a server.
func (c *cluster) client(addr string) *goredis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[addr]
	if client == nil {
		o := c.options // go-redis changes it
		o.Addr = addr
		client = goredis.NewClient(&o)
		if c.clients[addr] = client; c.closed {
			_ = client.Close()
		}
	}
	return client
}

func (c *cluster) primaryOf(ctx context.Context, key string) (*goredis.Client, error) {
	l, err := c.current(ctx, false)
	if err != nil {
		return nil, err
	}
	addr := l.owners[slotOf(key)]
	if addr == "" {
		c.distrust()
		return nil, errors.New("no primary of the cluster has the key")
	}
	return c.client(addr), nil
}

func (c *cluster) primaries(ctx context.Context) (all []*goredis.Client, text string, err error) {
	l, err := c.current(ctx, true)
	if err != nil {
		return nil, "", err
	}
	if slices.Contains(l.owners[:], "") {
		return nil, "", errors.New("a part of the cluster's keys has no primary")
	}
	for _, addr := range l.primaries {
		all = append(all, c.client(addr))
	}
	return all, l.text, nil
}

func (c *cluster) some() *goredis.Client {
	c.mu.Lock()
	addrs := c.seeds
	if c.layout != nil {
		addrs = c.layout.primaries
	}
	c.mu.Unlock()
	return c.client(addrs[rand.IntN(len(addrs))])
}

// replicasOf returns what is known of the replicas of a primary. One that the layout lacks may have as many as any other.
func (c *cluster) replicasOf(to *goredis.Client) *replicaCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := to.Options().Addr
	count := c.replicas[addr]
	if count == nil {
		count = &replicaCount{}
		for _, other := range c.replicas {
			count.raise(other.get())
		}
		c.replicas[addr] = count
	}
	return count
}

// heed follows MOVED and ASK. After other errors the layout is loaded again: they may be those of a server that is gone.
func (c *cluster) heed(from *goredis.Client, err error) (instead *goredis.Client, asking bool) {
	var of goredis.Error
	if err == nil || errors.Is(err, goredis.Nil) {
		return nil, false
	}
	if !errors.As(err, &of) {
		c.distrust()
		return nil, false
	}
	words := strings.Fields(of.Error())
	switch {
	case words[0] == "CLUSTERDOWN", words[0] == readOnly, words[0] == "MASTERDOWN":
		c.distrust()
		return nil, false
	case len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK":
		return nil, false
	}
	asking = words[0] == "ASK"
	if !asking {
		c.distrust()
	}
	addr, ok := addressFrom(from.Options().Addr, words[2])
	if !ok {
		return nil, false
	}
	return c.client(addr), asking
}

// addressFrom reads an address that a server has named. Without a host it has that of the server.
func addressFrom(server, text string) (addr string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", false
	}
	host, port := strings.Trim(text[:i], "[]"), text[i+1:]
	if host == "" || host == "?" {
		var err error
		if host, _, err = net.SplitHostPort(server); err != nil {
			return "", false
		}
	}
	return net.JoinHostPort(host, port), true
}

// distrust has the layout loaded before the next request.
func (c *cluster) distrust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// current returns the layout, and loads it if it is missing, out of date, or has to be fresh. If that fails, an old one serves, unless it
// has to be fresh.
func (c *cluster) current(ctx context.Context, fresh bool) (*layout, error) {
	c.mu.Lock()
	if before := c.loading; fresh && before != nil { // its layout may be older than this call
		c.mu.Unlock()
		if err := before.wait(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
	}
	old := c.layout
	if old != nil && !fresh && (!c.stale || time.Since(old.at) < loadPause) || c.closed {
		defer c.mu.Unlock()
		if c.closed {
			return nil, goredis.ErrClosed
		}
		return old, nil
	}
	l := c.loading
	if l == nil {
		l = &load{done: make(chan struct{})}
		c.loading, c.stale = l, false
		c.work.Go(func() { c.load(l) })
	}
	c.mu.Unlock()
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	switch {
	case l.err == nil:
		return l.layout, nil
	case old != nil && !fresh:
		return old, nil
	}
	return nil, l.err
}

// load asks one server after the other for the layout.
func (c *cluster) load(l *load) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	c.mu.Lock()
	known := []string{}
	if c.layout != nil {
		known = slices.Clone(c.layout.primaries)
	}
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	// All requests wait for the load: one server that hangs must not delay each.
	slices.SortStableFunc(known, func(a, b string) int { return c.failedAt[a].Compare(c.failedAt[b]) })
	c.mu.Unlock()
	for _, addr := range append(known, c.seeds...) {
		one, err := c.ask(ctx, addr)
		c.mu.Lock()
		if delete(c.failedAt, addr); err != nil {
			c.failedAt[addr] = time.Now()
		}
		c.mu.Unlock()
		if err == nil {
			l.layout, l.err = one, nil
			break
		}
		l.err = fmt.Errorf("asking %s for the layout of the cluster: %w", addr, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading = nil; l.err == nil {
		c.replace(l.layout)
	} else {
		c.stale = true
	}
	close(l.done)
}

// replace takes in a new layout. mu is held.
func (c *cluster) replace(l *layout) {
	before := shards{}
	if c.layout != nil {
		before = c.layout.shards
	}
	var homeless int
	l.shards, homeless = shardsOf(l.ids, l.nodes, before)
	counts := map[string]*replicaCount{}
	for addr, n := range l.shards.replicas(homeless) {
		if counts[addr] = c.replicas[addr]; counts[addr] == nil {
			counts[addr] = &replicaCount{}
		}
		counts[addr].known.Store(int64(n))
	}
	c.layout, c.replicas = l, counts
	maps.DeleteFunc(c.failedAt, func(addr string, _ time.Time) bool { return !slices.Contains(l.primaries, addr) })
	c.forget()
}

// longestCall is how long one call uses a client, in time limits of requests: a batch has three of them.
const longestCall = 3

// forget closes the clients of servers that are no primaries any more, when the calls have ended that use them: the server to which a
// part of the keys moves is no primary before it has them all. mu is held.
func (c *cluster) forget() {
	for addr, client := range c.clients {
		if !slices.Contains(c.layout.primaries, addr) && !slices.Contains(c.seeds, addr) {
			delete(c.clients, addr)
			c.work.Go(func() {
				select {
				case <-time.After(longestCall * c.timeout):
				case <-c.ctx.Done():
				}
				_ = client.Close()
			})
		}
	}
}

// ask asks a server for the layout.
func (c *cluster) ask(ctx context.Context, addr string) (*layout, error) {
	// One server that hangs leaves time for the others.
	ctx, cancel := context.WithTimeout(ctx, c.timeout/2)
	defer cancel()
	pipe := c.client(addr).Pipeline()
	ranges, nodes := pipe.ClusterSlots(ctx), pipe.ClusterNodes(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	l := &layout{at: time.Now(), ids: map[string]string{}, nodes: parseNodes(nodes.Val())}
	for _, r := range ranges.Val() {
		if r.Start < 0 || r.End >= slots || len(r.Nodes) == 0 {
			continue
		}
		primary, ok := addressFrom(addr, r.Nodes[0].Addr)
		if !ok {
			return nil, errors.New("a server of the cluster has no address")
		}
		l.ids[r.Nodes[0].ID] = primary
		for i := r.Start; i <= r.End; i++ {
			l.owners[i] = primary
		}
		l.primaries = append(l.primaries, primary)
	}
	slices.Sort(l.primaries)
	if l.primaries = slices.Compact(l.primaries); len(l.primaries) == 0 {
		return nil, errors.New("no primary of the cluster has keys")
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strings.Join(l.owners[:], " ")))
	l.text = strconv.FormatUint(sum.Sum64(), 16)
	return l, nil
}

// why is nil: the error of a request says why.
func (c *cluster) why(time.Time) error { return nil }

func (c *cluster) close() (err error) {
	c.mu.Lock()
	c.closed = true
	c.stop()
	clients := c.clients
	c.clients = map[string]*goredis.Client{}
	c.mu.Unlock()
	for _, client := range clients {
		err = errors.Join(err, client.Close())
	}
	c.work.Wait()
	return err
}

// slotOf returns the slot of a key: the CRC16 (XMODEM) of what is within its first braces, or of the whole key.
func slotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			key = tag
		}
	}
	const polynomial = 0x1021
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc & 0x8000
			if crc <<= 1; carry != 0 {
				crc ^= polynomial
			}
		}
	}
	return int(crc) % slots
}
