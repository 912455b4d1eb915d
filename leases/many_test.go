package leases_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// gated is a Locker whose calls wait while the gate is locked.
type gated struct {
	*hollow
	gate sync.RWMutex
}

func (g *gated) TryAcquire(ctx context.Context, r driver.Request) (holdfast.Lease, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.hollow.TryAcquire(ctx, r)
}

func (g *gated) Release(context.Context, holdfast.Lease) error {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return nil
}

// A call with very many names lets other calls proceed again and again: the loss of a lease does not
// wait until Add, Remove, Leases or Close has processed all names.
func TestManagerCallsWithManyNamesLetOthersIn(t *testing.T) {
	const many = 10_000
	var calls, since atomic.Int64  // of the clock: one for every name that is processed; since: when the other call began
	var waiting, probe atomic.Bool // another call waits for the manager; a new one may begin
	var m *leases.LeaseManager
	done := make(chan int64, 1)
	begin := time.Now()
	clock := func() time.Duration {
		n := calls.Add(1)
		if probe.CompareAndSwap(true, false) {
			since.Store(n)
			waiting.Store(true)
			go func() {
				m.Hold("none")
				processed := calls.Load() - n
				waiting.Store(false)
				done <- processed
			}()
		}
		if waiting.Load() {
			// A busy machine may let the other goroutine run only after a second.
			if processed := n - since.Load(); processed > many/8 && processed <= many/4 {
				time.Sleep(time.Millisecond)
			} else {
				time.Sleep(50 * time.Microsecond)
			}
		}
		return time.Since(begin)
	}
	l := &gated{hollow: &hollow{}}
	c := locktest.NewClient(t, l, holdfast.WithElapsed(clock), holdfast.WithTTL(time.Hour))
	m = locktest.NewManager(t, c)
	check := func(what string, call func()) {
		t.Helper()
		l.gate.Lock()
		probe.Store(true)
		call()
		l.gate.Unlock()
		if n := <-done; n > many/4 {
			t.Errorf("%s processed %d of %d names before another call", what, n, many)
		}
	}
	names := locktest.Names("n/", many)
	ended := locktest.Ended()
	check("Add", func() { locktest.MustAdd(t, m, names...) })
	locktest.Eventually(t, "all leases are held", func() bool { return len(m.Leases()) == many })
	check("Leases", func() { m.Leases() })
	check("Remove", func() { _ = m.Remove(ended, names[:many/2]...) })
	check("Close", func() { _ = m.Close(ended) })
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
