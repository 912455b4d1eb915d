//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

// crew are the clients of one backend.
type crew struct {
	t         *testing.T
	rec       *history.Recorder
	store     *workload.Store
	processes atomic.Int64 // started so far
	members   []*client
}

// client is one of the crew: a process at a time. Only one storm does things to it.
type client struct {
	crew   *crew
	config workload.Config
	wire   fault.Mesh // its way to the servers
	now    *workload.Process
}

func (c *client) start() error {
	c.config.Process = int(c.crew.processes.Add(1))
	p, err := workload.Start(c.config, c.crew.rec)
	if err == nil {
		c.now = p
	}
	return err
}

// clientFaults are those that come over one of some clients: every other time the one
// that has the lock, if it is among them.
func clientFaults(members []*client, ttl time.Duration) []disturbance {
	on := func(begin func(context.Context, *client) error, undo func(*client) error) beginning {
		return func(ctx context.Context, r *rand.Rand) (ending, error) {
			c := victim(members, r)
			return func(context.Context) error { return undo(c) }, begin(ctx, c)
		}
	}
	process := func(begin, undo func(*client) error) beginning {
		return on(func(_ context.Context, c *client) error { return begin(c) }, undo)
	}
	wire := func(begin func(*fault.Proxy) error) beginning {
		return process(func(c *client) error { return c.wire.Each(begin) }, (*client).restore)
	}
	stop, resume := func(c *client) error { return c.now.Stop() }, func(c *client) error { return c.now.Continue() }
	const second = time.Second
	return []disturbance{
		{"client killed (SIGKILL)", process((*client).kill, (*client).start), second / 10, 3 * second},
		{"client stopped (SIGSTOP) beyond its TTL", process(stop, resume), ttl, ttl * 3 / 2},
		{"client stopped (SIGSTOP) for a moment", process(stop, resume), second / 10, ttl / 3},
		{"network cut: connections refused", wire((*fault.Proxy).Cut), second, ttl * 3 / 2},
		{"network half-open: nothing answers", wire((*fault.Proxy).HalfOpen), second, ttl * 3 / 2},
		{"network loses replies", wire((*fault.Proxy).LoseReplies), second, ttl},
		{"network resets requests", wire((*fault.Proxy).Reset), second / 10, 3 * second},
		{"network resets replies", wire((*fault.Proxy).ResetReplies), second / 10, 3 * second},
		{"network slow", wire(slow(ttl / 12)), second, ttl},
		{"network slow, then cut", on(func(ctx context.Context, c *client) error { return c.fade(ctx) }, (*client).restore), ttl, ttl * 3 / 2},
	}
}

func slow(by time.Duration) func(*fault.Proxy) error {
	return func(p *fault.Proxy) error { return p.Latency(by, by/3) }
}

// restore ends what was done to the wire. Connections are cut first: toxiproxy can wait
// for ever for one that ends while a fault is taken off it.
func (c *client) restore() error {
	if err := c.wire.Each((*fault.Proxy).Cut); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // until they have ended
	return c.wire.Each((*fault.Proxy).Restore)
}

// fade has the last renewal that succeeds take long: whoever counts its time from the
// reply counts too much.
func (c *client) fade(ctx context.Context) error {
	ttl := c.config.TTL
	if err := c.wire.Each(slow(ttl / 30)); err != nil {
		return err
	}
	select {
	case <-time.After(ttl / 2): // there is a renewal in that
	case <-ctx.Done():
	}
	return c.wire.Each((*fault.Proxy).Cut)
}

func (c *client) kill() error {
	if !c.now.Running() {
		c.crew.t.Error(c.now.Terminate(c.crew.t.Context())) // it says how it ended
	}
	c.now.Kill()
	return nil
}

// victim is the one that has the lock, every other time, or anybody.
func victim(members []*client, r *rand.Rand) *client {
	random, holder := members[r.IntN(len(members))], r.IntN(2) == 0
	for _, c := range members {
		if holder && c.config.Client == c.crew.store.LastClient() {
			return c
		}
	}
	return random
}

// newCrew starts the clients. They are gone at the end of the test, in whatever order
// it ends.
func newCrew(t *testing.T, rec *history.Recorder, store *workload.Store, dir string, on *target) *crew {
	t.Helper()
	c := &crew{t: t, rec: rec, store: store}
	for i := range clients {
		config, wire := on.client()
		config.Client, config.Dir, config.Store, config.Lock = i, dir, store.URL(), "chaos"
		member := &client{crew: c, config: config, wire: wire}
		if err := member.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { member.now.Kill() })
		c.members = append(c.members, member)
	}
	return c
}
