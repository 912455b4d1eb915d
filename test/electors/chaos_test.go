//go:build unix

package electors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/history"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// record is the history of a run in this process.
type record struct {
	mu      sync.Mutex
	lines   []history.Line
	counter int64 // which only the lock protects
}

func (r *record) add(l history.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.At == 0 {
		l.At = history.Now()
	}
	r.lines = append(r.lines, l)
}

// set writes what was computed from a value that was read before.
func (r *record) set(client int, token uint64, base int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, history.Line{Kind: history.Set, At: history.Now(), Client: client, Process: client, Token: token, Base: base,
		Found: r.counter, Value: base + 1})
	r.counter = base + 1
}

func (r *record) read() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counter
}

// work works under a lock, and records for how long its context was live.
func (r *record) work(hold *holdfast.Hold, client int, id uint64, d time.Duration) {
	live := history.Line{Kind: history.Live, Client: client, Process: client, ID: id, Token: hold.Token()}
	look := func() bool {
		at := history.Now()
		if hold.Err() == nil {
			live.ErrNil = at
		}
		if hold.Context().Err() != nil {
			return false
		}
		live.At = at
		return true
	}
	if !look() {
		return
	}
	r.add(live)
	base := r.read()
	for end := time.Now().Add(d); look() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	r.add(live)
	if hold.Err() == nil {
		r.set(client, hold.Token(), base)
	}
}

// stalls records when this process did not get to run.
func (r *record) stalls(ctx context.Context) {
	for last := history.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		now := history.Now()
		if now-last > 300*time.Millisecond {
			r.add(history.Line{Kind: history.Stall, At: last, Until: now})
		}
		last = now
	}
}

// The API server and etcd are killed and paused by chance while eight clients compete for a lock. The history has no overlap, no token that
// falls, and no lost update.
func TestChaosCluster(t *testing.T) {
	server := kubernetestest.StartCluster(t)
	c := clusterAt(t, server.URL(t))
	var r record
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all.Go(func() { r.stalls(ctx) })
	for client := 1; client <= 8; client++ {
		holder := c.client(t, nil)
		all.Go(func() {
			for id := uint64(1); ctx.Err() == nil; id++ {
				r.add(history.Line{Kind: history.Ask, Client: client, Process: client, ID: id})
				hold, err := holder.Lock(ctx, "chaos", holdfast.WithTTL(10*time.Second))
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("client %d: %v", client, err)
						time.Sleep(time.Second)
					}
					continue
				}
				d := time.Duration(rand.IntN(400)) * time.Millisecond
				if rand.IntN(10) == 0 {
					d = 15 * time.Second // with renewals
				}
				r.work(hold, client, id, d)
				release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				_ = hold.Release(release) // the rest is done in the background
				cancel()
			}
		})
	}
	faults := []struct {
		name         string
		inject, undo func() error
	}{
		{"API server killed", server.API.Kill, func() error { return server.API.Restart(context.WithoutCancel(ctx)) }},
		{"etcd killed", server.Etcd.Kill, func() error { return server.Etcd.Restart(context.WithoutCancel(ctx)) }},
		{"both killed", func() error { return errors.Join(server.API.Kill(), server.Etcd.Kill()) },
			func() error {
				return errors.Join(server.Etcd.Restart(context.WithoutCancel(ctx)), server.API.Restart(context.WithoutCancel(ctx)))
			}},
		{"API server paused", server.API.Pause, server.API.Resume},
		{"etcd paused", server.Etcd.Pause, server.Etcd.Resume},
	}
	for i, end := 0, time.Now().Add(*runFor); time.Now().Before(end); i++ {
		f := faults[i%len(faults)]
		time.Sleep(time.Duration(1000+rand.IntN(4000)) * time.Millisecond)
		at := history.Now()
		err := f.inject()
		time.Sleep(time.Duration(rand.IntN(7000)) * time.Millisecond)
		if err = errors.Join(err, f.undo()); err != nil {
			t.Error(f.name, err)
			break
		}
		r.add(history.Line{Kind: history.Fault, At: at, Until: history.Now(), Note: f.name})
	}
	before := len(r.holds(t).Holds)
	for end := time.Now().Add(time.Minute); len(r.holds(t).Holds) <= before+8 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	all.Wait()
	h := r.holds(t)
	report := history.Check(h)
	fmt.Print(report)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if len(h.Holds) <= before+8 {
		t.Errorf("%d grants within a minute of the last fault", len(h.Holds)-before)
	}
}

func (r *record) holds(t *testing.T) *history.History {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	h, err := history.Merge(append([]history.Line{}, r.lines...))
	if err != nil {
		t.Fatal(err)
	}
	return h
}
