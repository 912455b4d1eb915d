package locktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/leases"
)

func NewManager(tb testing.TB, c *holdfast.Client, opts ...leases.Option) *leases.LeaseManager {
	tb.Helper()
	m, err := leases.New(c, opts...)
	if err != nil {
		tb.Fatalf("NewLeaseManager: %v", err)
	}
	return m
}

func MustManage(tb testing.TB, m *leases.LeaseManager, names ...string) {
	tb.Helper()
	if err := m.Add(names...); err != nil {
		tb.Fatalf("Manage: %v", err)
	}
}

func MustUnmanage(tb testing.TB, m *leases.LeaseManager, names ...string) {
	tb.Helper()
	if err := m.Remove(tb.Context(), names...); err != nil {
		tb.Fatalf("Unmanage: %v", err)
	}
}

func NamesOf(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return names
}

// Ledger is an observer that checks the order of each name's events: acquired, then
// released or lost.
type Ledger struct {
	tb testing.TB
	Events
	Held map[string]uint64
	last map[string]uint64
}

func NewLedger(tb testing.TB) *Ledger {
	return &Ledger{tb: tb, Held: map[string]uint64{}, last: map[string]uint64{}}
}

func (l *Ledger) Observe(e holdfast.Event) {
	l.Events.Observe(e)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if e.Dropped != 0 {
		l.tb.Errorf("%d events were dropped before: %v", e.Dropped, e)
	}
	switch e.Type {
	case holdfast.EventAcquired:
		if l.Held[e.Name] != 0 || e.Token <= l.last[e.Name] {
			l.tb.Errorf("%v, after token %d, held with token %d", e, l.last[e.Name], l.Held[e.Name])
		}
		l.Held[e.Name], l.last[e.Name] = e.Token, e.Token
	case holdfast.EventReleased, holdfast.EventLost:
		if l.Held[e.Name] != e.Token {
			l.tb.Errorf("%v, but held with token %d", e, l.Held[e.Name])
		}
		delete(l.Held, e.Name)
	case holdfast.EventOverrun:
		l.tb.Errorf("%v", e)
	}
}

// busiest is a Locker that notes how many calls of each kind are under way at once.
type busiest struct {
	holdfast.Locker
	pause time.Duration
	mu    sync.Mutex
	now   map[string]int
	most  map[string]int
}

func NewBusiest(l holdfast.Locker, pause time.Duration) *busiest {
	return &busiest{Locker: l, pause: pause, now: map[string]int{}, most: map[string]int{}}
}

func (b *busiest) count(op string) func() {
	b.mu.Lock()
	b.now[op]++
	b.most[op] = max(b.most[op], b.now[op])
	b.mu.Unlock()
	time.Sleep(b.pause)
	return func() {
		b.mu.Lock()
		b.now[op]--
		b.mu.Unlock()
	}
}

func (b *busiest) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	defer b.count(OpAcquire)()
	return b.Locker.TryAcquire(ctx, req)
}

func (b *busiest) Release(ctx context.Context, l holdfast.Lease) error {
	defer b.count(OpRelease)()
	return b.Locker.Release(ctx, l)
}

func (b *busiest) Highest(op string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most[op]
}
