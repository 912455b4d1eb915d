//go:build unix

package electors

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var runFor = flag.Duration("for", 20*time.Second, "how long TestOneLease runs")

// ttl is the shortest that the driver allows.
const ttl = 5 * time.Second

// section is what one program at a time may be in.
type section struct {
	in    atomic.Pointer[string]
	holds sync.Map // how often each kind of program was in it
}

// work is in the section for a time, or until ctx ends.
func (s *section) work(ctx context.Context, t *testing.T, kind, who string, d time.Duration) {
	if other := s.in.Swap(&who); other != nil {
		t.Errorf("%s began while %s was at work", who, *other)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	s.in.CompareAndSwap(&who, nil)
	n, _ := s.holds.LoadOrStore(kind, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// Promise 1 between programs with client-go's elector and those with Holdfast, on one Lease: they work for a moment and release, and every
// fourth time they are cut off from the API server while they work, until they have noticed.
func TestOneLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var s section
	var all sync.WaitGroup
	var last atomic.Uint64 // token
	// at is one piece of work. What cuts off mends afterwards.
	at := func(ctx context.Context, w *wire, kind, who string) {
		d := time.Duration(50+rand.IntN(400)) * time.Millisecond
		if rand.IntN(4) == 0 {
			w.state.Store(int32(cut + rand.IntN(2)))
			d = time.Minute
		}
		s.work(ctx, t, kind, who, d)
	}
	rest := func() { time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond) }
	wires := []*wire{{}, {}}
	var clients []*holdfast.Client
	for _, w := range wires {
		clients = append(clients, c.client(t, w))
	}
	ctx, cancel := context.WithTimeout(t.Context(), *runFor)
	defer cancel()
	for i := range 2 {
		w, who := &wire{}, fmt.Sprint("elector-", i)
		settings := quick
		settings.ReleaseOnCancel = true
		all.Go(func() {
			for ctx.Err() == nil {
				c.campaign(ctx, t, w, "op", who, settings, func(ctx context.Context) { at(ctx, w, "electors", who) })
				w.state.Store(whole)
				rest()
			}
		})
	}
	for i, client := range clients {
		w, who := wires[i], fmt.Sprint("holdfast-", i)
		all.Go(func() {
			for ctx.Err() == nil {
				hold, err := client.Lock(ctx, "op", holdfast.WithTTL(ttl))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("%s: %v", who, err)
					return
				}
				if token := hold.Token(); last.Swap(token) >= token {
					t.Errorf("the token %d came after a greater one", token)
				}
				at(hold.Context(), w, "Holdfast", who)
				w.state.Store(whole)
				_ = hold.Release(context.WithoutCancel(ctx))
				rest()
			}
		})
	}
	all.Wait()
	total := int64(0)
	for _, kind := range []string{"electors", "Holdfast"} {
		n, _ := s.holds.LoadOrStore(kind, new(atomic.Int64))
		held := n.(*atomic.Int64).Load()
		if total += held; held < 2 {
			t.Errorf("%s had the Lease %d times", kind, held)
		}
		t.Logf("%s had the Lease %d times", kind, held)
	}
	t.Logf("%d holds in %v", total, *runFor)
}

// An elector that stops too late releases the Lease of whoever has it. A lock is still held, and its next renewal writes the fields again.
// The context of the elector's work ends only afterwards: docs/kubernetes.md says so, and what to set.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w, lost := &wire{}, make(chan struct{})
	settings := quick // it ceases to renew 3 s before another may have the Lease, and tries to release for 6 s from then on
	settings.LeaseDuration, settings.RenewDeadline, settings.ReleaseOnCancel = 12*time.Second, 9*time.Second, true
	var ended sync.WaitGroup
	leads := make(chan struct{})
	ended.Go(func() {
		c.campaign(t.Context(), t, w, "op", "elector", settings, func(ctx context.Context) {
			close(leads)
			<-ctx.Done()
			close(lost)
		})
	})
	<-leads
	w.state.Store(stalled)
	client := c.client(t, nil)
	hold, err := client.Lock(t.Context(), "op", holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
		t.Error("this client-go ends the context before it releases: docs/kubernetes.md says that it does not")
	default:
	}
	before := w.sent.Load()
	w.state.Store(whole)
	ended.Wait()
	if w.sent.Load() == before {
		t.Fatal("the elector has released nothing: it was too late")
	}
	if _, err := c.client(t, nil).TryLock(t.Context(), "op", holdfast.WithTTL(ttl)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	time.Sleep(ttl) // renewals
	if err := hold.Err(); err != nil {
		t.Errorf("the hold was lost: %v", err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// An elector without ReleaseOnCancel leaves its Lease, and takes it again at once under its name. So nobody else has it, while
// it starts again and again.
func TestRestartsUnderItsName(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client := c.client(t, nil)
	settings := quick
	settings.LeaseDuration = 10 * time.Second
	lead := func() { c.campaign(t.Context(), t, nil, "op", "elector", settings, func(context.Context) {}) }
	lead()
	for range 5 {
		_, err := client.TryLock(t.Context(), "op", holdfast.WithTTL(ttl))
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("beside an elector's Lease: %v", err)
		}
		lead()
	}
	began := time.Now()
	hold, err := client.Lock(t.Context(), "op", holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < settings.LeaseDuration-2*time.Second {
		t.Errorf("taken over after %v", waited)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
