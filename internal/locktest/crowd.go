package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// crowd is one process that waits for many names, which another one holds.
type crowd struct {
	t      *testing.T
	store  *memory.Store
	Calls  *Faulty // of those who wait
	Client *holdfast.Client
	Holds  map[string]*holdfast.Hold
	dead   atomic.Bool // the holder renews no more
	Wg     sync.WaitGroup

	Mu      sync.Mutex
	Granted map[string]time.Time
}

// NewCrowd begins to wait; adjust sees to the calls of those who wait, before there are any.
func NewCrowd(t *testing.T, names int, adjust func(*Faulty), opts ...holdfast.ClientOption) *crowd {
	c := &crowd{t: t, store: memory.NewStore(), Holds: map[string]*holdfast.Hold{}, Granted: map[string]time.Time{}}
	holder := NewClient(t, mortal{c.store.Locker(), &c.dead})
	c.Calls = NewFaulty(t, c.store.Locker(), nil)
	c.Calls.Watcher = true
	adjust(c.Calls)
	c.Client = NewClient(t, c.Calls, opts...)
	for i := range names {
		name := fmt.Sprint("job-", i)
		c.Holds[name] = MustLock(t, holder, name)
		c.Wg.Go(func() {
			h, err := c.Client.Lock(t.Context(), name)
			if errors.Is(err, holdfast.ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			c.Mu.Lock()
			defer c.Mu.Unlock()
			c.Granted[name] = time.Now()
			_ = h // kept until the end
		})
		time.Sleep(10 * time.Millisecond) // they come one after another
	}
	synctest.Wait()
	return c
}

// TakenOver lets the holder die and checks that each lock but some is taken at its expiry.
func (c *crowd) TakenOver(but ...string) {
	c.t.Helper()
	c.dead.Store(true)
	ends := map[string]time.Time{}
	l := c.store.Locker()
	defer l.Close(context.WithoutCancel(c.t.Context()))
	for name := range c.Holds {
		r, err := l.Inspect(context.Background(), name)
		if err != nil || !r.RemainingKnown {
			c.t.Fatalf("Inspect: %v, %v", r, err)
		}
		ends[name] = time.Now().Add(r.Remaining)
	}
	c.Wg.Wait()
	for name, end := range ends {
		if slices.Contains(but, name) {
			continue
		}
		if late := c.Granted[name].Sub(end); late < 0 || late > 20*time.Millisecond {
			c.t.Errorf("%s was granted %v after its expiry", name, late)
		}
	}
}

// mortal is a Locker of a process that can die: then nothing is renewed or released.
type mortal struct {
	holdfast.Locker
	dead *atomic.Bool
}

func (m mortal) Renew(ctx context.Context, l holdfast.Lease) error {
	if m.dead.Load() {
		return ErrInjected
	}
	return m.Locker.Renew(ctx, l)
}

func (m mortal) RenewBatch(ctx context.Context, leases []holdfast.Lease) []error {
	if m.dead.Load() {
		return slices.Repeat([]error{ErrInjected}, len(leases))
	}
	return m.Locker.Capabilities().BatchRenewer.RenewBatch(ctx, leases)
}

func (m mortal) Release(ctx context.Context, l holdfast.Lease) error {
	if m.dead.Load() {
		return ErrInjected
	}
	return m.Locker.Release(ctx, l)
}

func (m mortal) Capabilities() driver.Capabilities {
	a := m.Locker.Capabilities()
	a.BatchRenewer, a.HandOverer = m, nil
	return a
}

// GapWatcher passes wake-ups on unless there is a gap.
type GapWatcher struct {
	holdfast.Locker
	Open  atomic.Bool
	mu    sync.Mutex
	wakes []func()
}

func (g *GapWatcher) Capabilities() driver.Capabilities {
	a := g.Locker.Capabilities()
	a.Watcher = g
	return a
}

func (g *GapWatcher) Watch(name string, wake func()) (stop func()) {
	g.mu.Lock()
	g.wakes = append(g.wakes, wake)
	g.mu.Unlock()
	return g.Locker.Capabilities().Watcher.Watch(name, func() {
		if !g.Open.Load() {
			wake()
		}
	})
}

func (g *GapWatcher) WakeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, wake := range g.wakes {
		wake()
	}
}
