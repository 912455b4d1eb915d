package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// slots is how many parts the keys of a cluster have.
const slots = 1 << 14

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
	tried    time.Time // when the last load began
	closed   bool
	ctx      context.Context //nolint:containedctx // close ends it
	stop     context.CancelFunc
}

func newCluster(o goredis.Options, seeds []string, timeout time.Duration) *cluster {
	c := &cluster{options: o, seeds: seeds, timeout: timeout, clients: map[string]*goredis.Client{}, replicas: map[string]*replicaCount{}}
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
	slot := slotOf(key)
	l := c.known(slot)
	if l == nil {
		var err error
		if l, err = c.current(ctx, false); err != nil {
			return nil, err
		}
	}
	addr := l.owners[slot]
	if addr == "" {
		c.distrust()
		return nil, errNoOwner
	}
	return c.client(addr), nil
}

var errNoOwner = errors.New("no primary of the cluster has the key")

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
