package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/faulty"
)

// ErrInjected is the answer of a call that a Fault refused, ErrTask the error of a failed task.
var (
	ErrInjected = errors.New("injected failure")
	ErrTask     = errors.New("the task failed")
)

// Kinds of calls; see package faulty.
const (
	OpAcquire = faulty.OpAcquire
	OpRenew   = faulty.OpRenew
	OpRelease = faulty.OpRelease
	OpInspect = faulty.OpInspect
)

// Faulty is a Locker between a client and a backend to whose calls Faults happen.
type Faulty = faulty.Locker

// Fault is what happens to one call.
type Fault = faulty.Fault

// Faults chooses what happens to a call.
type Faults = faulty.Faults

// NewFaulty makes a Faulty without a Waker. The test's end waits for its calls under way. With
// nil no fault happens.
func NewFaulty(tb testing.TB, l holdfast.Locker, faults Faults) *Faulty {
	f := faulty.New(l, faults)
	tb.Cleanup(func() { f.InFlight.Wait(context.Background()) })
	return f
}

// FaultyClient makes a client of a Faulty, as [NewClient] does.
func FaultyClient(tb testing.TB, l holdfast.Locker, faults Faults, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	return NewClient(tb, NewFaulty(tb, l, faults), opts...)
}

// Each has a fault happen to every call of a kind.
func Each(op string, fault Fault) Faults {
	return func(called string, _ int, _ holdfast.Lease) (none Fault) {
		if called == op {
			return fault
		}
		return none
	}
}

// First has a fault happen to the first call of a kind.
func First(op string, fault Fault) Faults {
	return func(called string, n int, _ holdfast.Lease) (none Fault) {
		if called == op && n == 1 {
			return fault
		}
		return none
	}
}

// Named has a fault happen to every call of a kind for one lock; of every kind if op is empty.
func Named(op, name string, fault Fault) Faults {
	return func(called string, _ int, l holdfast.Lease) (none Fault) {
		if (op == "" || called == op) && l.Name == name {
			return fault
		}
		return none
	}
}

// While has a fault happen to every call as long as on is true.
func While(on *atomic.Bool, fault Fault) Faults {
	return func(string, int, holdfast.Lease) (none Fault) {
		if on.Load() {
			return fault
		}
		return none
	}
}

// Refuse refuses all calls of these kinds.
func Refuse(ops ...string) Faults {
	return func(op string, _ int, _ holdfast.Lease) Fault {
		if slices.Contains(ops, op) {
			return Fault{Refuse: ErrInjected}
		}
		return Fault{}
	}
}

// FaultOf is the fault of a kind, from 0 to 4; of another kind it is none.
func FaultOf(kind int, d time.Duration) (f Fault) {
	switch kind {
	case 0:
		f.Refuse = ErrInjected
	case 1:
		f.Lose = ErrInjected
	case 2:
		f.Hang = true
	case 3:
		f.Late = d
	case 4:
		f.Delay = d
	}
	return f
}

// RandomFaults has faults of all kinds happen to five of eight calls, and counts them.
func RandomFaults(rng *rand.Rand, count *atomic.Int64) Faults {
	var mu sync.Mutex
	return func(string, int, holdfast.Lease) Fault {
		mu.Lock()
		defer mu.Unlock()
		d, kind := time.Duration(rng.IntN(4000))*time.Millisecond, rng.IntN(8)
		if kind < 5 {
			count.Add(1)
		}
		return FaultOf(kind, d)
	}
}

// RenewalFaults applies these faults to the first renewals, in order, and refuses all others.
// With the default TTL of 30 s the first renewal is sent at 10 s and given up at 13.75 s; the
// second is sent at 14 s.
func RenewalFaults(first ...Fault) Faults {
	return func(op string, n int, _ holdfast.Lease) Fault {
		switch {
		case op != OpRenew:
			return Fault{}
		case n <= len(first):
			return first[n-1]
		}
		return Fault{Refuse: ErrInjected}
	}
}

// NeverAnswers is a backend that does not answer calls of one kind for the locks "ill …" for an
// hour, long after their time limit.
func NeverAnswers(t *testing.T, store *memory.Store, op string) *Faulty {
	return NewFaulty(t, store.Locker(), func(called string, _ int, l holdfast.Lease) Fault {
		if called == op && strings.HasPrefix(l.Name, "ill ") {
			return Fault{Delay: time.Hour, IgnoreContext: true, Refuse: ErrInjected}
		}
		return Fault{}
	})
}
