//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

// crew are the clients of one backend.
type crew struct {
	rec       *history.Recorder
	store     *workload.Store
	processes atomic.Int64 // started so far
	members   []*client
}

// client is one of the crew: a process at a time. Only one storm does things to it.
type client struct {
	crew   *crew
	config workload.Config
	wire   wire
	now    *workload.Process
}

// wire is a client's way to the servers, all of them.
type wire interface {
	// disturb does something to it and returns what undoes it.
	cut() (undo func() error, err error)
	silence() (undo func() error, err error)
	reset() error
	delay(by, jitter time.Duration) (undo func() error, err error)
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
func clientFaults(members []*client, ttl time.Duration) []fault {
	on := func(do func(c *client) (undo func() error, err error)) func(context.Context, *rand.Rand) (func(context.Context) error, error) {
		return func(_ context.Context, r *rand.Rand) (func(context.Context) error, error) {
			undo, err := do(victim(members, r))
			return func(context.Context) error {
				if undo == nil {
					return nil
				}
				return undo()
			}, err
		}
	}
	second := time.Second
	faults := []fault{
		{"client killed (SIGKILL)", on(func(c *client) (func() error, error) {
			if !c.now.Running() {
				return nil, errors.New("a process has ended before its time")
			}
			c.now.Kill()
			return c.start, nil
		}), second / 10, 3 * second},
		{"client stopped (SIGSTOP) beyond its TTL", on(func(c *client) (func() error, error) {
			return c.now.Continue, c.now.Stop()
		}), ttl, ttl * 3 / 2},
		{"client stopped (SIGSTOP) for a moment", on(func(c *client) (func() error, error) {
			return c.now.Continue, c.now.Stop()
		}), second / 10, ttl / 3},
	}
	if members[0].wire == nil {
		return faults
	}
	return append(faults,
		fault{"client cut off (connections refused)", on(func(c *client) (func() error, error) { return c.wire.cut() }), second, ttl * 3 / 2},
		fault{"client cut off (nothing answers)", on(func(c *client) (func() error, error) { return c.wire.silence() }), second, ttl * 3 / 2},
		fault{"client's connections reset", on(func(c *client) (func() error, error) { return nil, c.wire.reset() }), 0, second},
		fault{"client's network slow", on(func(c *client) (func() error, error) {
			return c.wire.delay(300*time.Millisecond, 200*time.Millisecond)
		}), second, ttl},
	)
}

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
	c := &crew{rec: rec, store: store}
	for i := range clients {
		config, wire := on.client(i)
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
