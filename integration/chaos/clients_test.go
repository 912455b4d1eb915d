//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
)

// clientGroup is the clients of one backend.
type clientGroup struct {
	t         *testing.T
	rec       *history.Recorder
	store     *workload.Store
	processes atomic.Int64 // how many have been started
	clients   []*client
}

// client is one client of the group. It runs one process at a time. Only one fault injector uses
// it.
type client struct {
	group   *clientGroup
	config  workload.Config
	network fault.Mesh // between the client and the servers
	process *workload.Process
}

func (c *client) start() error {
	c.config.Process = int(c.group.processes.Add(1))
	p, err := workload.Start(c.config, c.group.rec)
	if err == nil {
		c.process = p
	}
	return err
}

// clientFaults are the faults of the given clients. Half of the time they affect the lock holder,
// if it is one of them.
func clientFaults(clients []*client, ttl time.Duration) []faultKind {
	onClient := func(inject func(context.Context, *client) error, undo func(*client) error) injectFunc {
		return func(ctx context.Context, r *rand.Rand) (undoFunc, error) {
			c := chooseClient(clients, r)
			return func(context.Context) error { return undo(c) }, inject(ctx, c)
		}
	}
	onProcess := func(inject, undo func(*client) error) injectFunc {
		return onClient(func(_ context.Context, c *client) error { return inject(c) }, undo)
	}
	onNetwork := func(inject func(*fault.Proxy) error) injectFunc {
		return onProcess(func(c *client) error { return c.network.Each(inject) }, (*client).restore)
	}
	stop, resume := func(c *client) error { return c.process.Stop() }, func(c *client) error { return c.process.Continue() }
	const second = time.Second
	return []faultKind{
		{"client killed (SIGKILL)", onProcess((*client).kill, (*client).start), second / 10, 3 * second},
		{"client stopped (SIGSTOP) beyond its TTL", onProcess(stop, resume), ttl, ttl * 3 / 2},
		{"client stopped (SIGSTOP) for a moment", onProcess(stop, resume), second / 10, ttl / 3},
		{"network cut: connections refused", onNetwork((*fault.Proxy).Cut), second, ttl * 3 / 2},
		{"network half-open: nothing answers", onNetwork((*fault.Proxy).HalfOpen), second, ttl * 3 / 2},
		{"network loses replies", onNetwork((*fault.Proxy).LoseReplies), second, ttl},
		{"network resets requests", onNetwork((*fault.Proxy).Reset), second / 10, 3 * second},
		{"network resets replies", onNetwork((*fault.Proxy).ResetReplies), second / 10, 3 * second},
		{"network slow", onNetwork(slow(ttl / 12)), second, ttl},
		{"network slow, then cut", onClient(func(ctx context.Context, c *client) error { return c.slowThenCut(ctx) }, (*client).restore), ttl,
			ttl * 3 / 2},
	}
}

func slow(by time.Duration) func(*fault.Proxy) error {
	return func(p *fault.Proxy) error { return p.Latency(by, by/3) }
}

// restore ends the faults of the network. It closes all connections first: toxiproxy can wait
// forever for a connection that ends while a fault is removed from it.
func (c *client) restore() error {
	if err := c.network.Each((*fault.Proxy).Cut); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // let the connections end
	return c.network.Each((*fault.Proxy).Restore)
}

// slowThenCut delays the last successful renewal. A client that counted its lease from the reply
// would hold it for too long.
func (c *client) slowThenCut(ctx context.Context) error {
	ttl := c.config.TTL
	if err := c.network.Each(slow(ttl / 30)); err != nil {
		return err
	}
	select {
	case <-time.After(ttl / 2): // long enough for a renewal
	case <-ctx.Done():
	}
	return c.network.Each((*fault.Proxy).Cut)
}

func (c *client) kill() error {
	if !c.process.Running() {
		c.group.t.Error(c.process.Terminate(c.group.t.Context())) // the error says how it ended
	}
	c.process.Kill()
	return nil
}

// chooseClient returns the lock holder half of the time, and otherwise a random client.
func chooseClient(clients []*client, r *rand.Rand) *client {
	randomClient, preferHolder := clients[r.IntN(len(clients))], r.IntN(2) == 0
	for _, c := range clients {
		if preferHolder && c.config.Client == c.group.store.LastClient() {
			return c
		}
	}
	return randomClient
}

// startClients starts the clients. They are killed at the end of the test, however it ends.
func startClients(t *testing.T, rec *history.Recorder, store *workload.Store, dir string, b *backend) *clientGroup {
	t.Helper()
	g := &clientGroup{t: t, rec: rec, store: store}
	for i := range clientCount {
		config, network := b.client()
		config.Client, config.Dir, config.Store, config.Lock = i, dir, store.URL(), "chaos"
		started := &client{group: g, config: config, network: network}
		if err := started.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { started.process.Kill() })
		g.clients = append(g.clients, started)
	}
	return g
}
