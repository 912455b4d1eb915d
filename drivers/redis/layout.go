package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// loadPause is the shortest time between two loads of the layout of a cluster while one is known, unless it has to be fresh.
const loadPause = 200 * time.Millisecond

// layout says which primary has which keys.
type layout struct {
	owners    [slots]string
	primaries []string
	text      string
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

// distrust makes the next request load the layout again.
func (c *cluster) distrust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// known returns the last layout, if it has a primary for a slot, and has it loaded again if it is out of date. Nothing waits for that: a
// server that hangs must not delay the requests to others, and those that the layout sends to the wrong server are redirected.
func (c *cluster) known(slot int) *layout {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.layout == nil || c.layout.owners[slot] == "" || c.closed {
		return nil
	}
	if c.due() {
		c.start()
	}
	return c.layout
}

// due reports whether the layout that is known is out of date. mu is held.
func (c *cluster) due() bool { return c.stale && time.Since(c.tried) >= loadPause }

// start begins to load the layout, unless that is under way. mu is held.
func (c *cluster) start() *load {
	l := c.loading
	if l == nil {
		l = &load{done: make(chan struct{})}
		c.loading, c.stale, c.tried = l, false, time.Now()
		c.work.Go(func() { c.load(l) })
	}
	return l
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
	if old != nil && !fresh && c.loading == nil && !c.due() || c.closed {
		defer c.mu.Unlock()
		if c.closed {
			return nil, goredis.ErrClosed
		}
		return old, nil
	}
	l := c.start()
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

// load asks for the layout, and takes it in.
func (c *cluster) load(l *load) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	c.mu.Lock()
	addrs := []string{}
	if c.layout != nil {
		addrs = slices.Clone(c.layout.primaries)
	}
	c.mu.Unlock()
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	for _, seed := range c.seeds {
		if !slices.Contains(addrs, seed) {
			addrs = append(addrs, seed)
		}
	}
	l.layout, l.err = c.askAll(ctx, addrs)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading = nil; l.err == nil {
		c.replace(l.layout)
	} else {
		c.stale = true
	}
	close(l.done)
}

// askAll asks servers for the layout, and returns the first answer. A server is asked when one before has failed, or has not answered
// for a while: so those that hang leave time for the last one. close ends these requests and waits for them.
func (c *cluster) askAll(ctx context.Context, addrs []string) (*layout, error) {
	type answer struct {
		layout *layout
		err    error
	}
	answers := make(chan answer, len(addrs))
	next := time.NewTicker(c.timeout / time.Duration(2*len(addrs))) // all are asked within half of the limit, and have the other half
	defer next.Stop()
	var errs []error
	for asked := 0; len(errs) < len(addrs); {
		if asked < len(addrs) {
			addr := addrs[asked]
			asked++
			c.work.Go(func() {
				l, err := c.ask(ctx, addr)
				answers <- answer{l, err}
			})
		}
		select {
		case a := <-answers:
			if a.err == nil {
				return a.layout, nil
			}
			errs = append(errs, classify(a.err))
		case <-next.C:
		case <-ctx.Done():
			return nil, joined(append(errs, ctx.Err()))
		}
	}
	return nil, joined(errs)
}

// joined makes one error of one or more. It is lasting if all are.
func joined(errs []error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return !driver.Lasting(err) }); i > 0 {
		errs[0], errs[i] = errs[i], errs[0]
	}
	err := errs[0]
	for _, other := range errs[1:] {
		err = fmt.Errorf("%w; %s", err, driver.ErrorText(other))
	}
	return err
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
	c.forget()
}

// ask asks a server for the layout.
func (c *cluster) ask(ctx context.Context, addr string) (l *layout, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout/2)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("asking %s for the layout of the cluster: %w", addr, err)
		}
	}()
	pipe := c.client(addr).Pipeline()
	ranges, nodes := pipe.ClusterSlots(ctx), pipe.ClusterNodes(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	l = &layout{ids: map[string]string{}, nodes: parseNodes(nodes.Val())}
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
