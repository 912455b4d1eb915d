package locktest

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	OpAcquire  = faulty.OpAcquire
	OpHandOver = faulty.OpHandOver
	OpRenew    = faulty.OpRenew
	OpRelease  = faulty.OpRelease
	OpInspect  = faulty.OpInspect
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

// Refuse refuses all calls of these kinds.
func Refuse(ops ...string) Faults {
	return func(op string, _ int, _ holdfast.Lease) Fault {
		if slices.Contains(ops, op) {
			return Fault{Refuse: ErrInjected}
		}
		return Fault{}
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
