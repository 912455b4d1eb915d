package locktest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Link is the Locker of one instance of Partitions, between it and the backend. It can be cut, can
// fail some calls, and can change what is read. While it is cut, every call hangs until its
// context ends, and nothing wakes the instance.
type Link struct {
	holdfast.Locker
	Cut               atomic.Bool
	NoMembership      atomic.Bool // attempts at member locks fail
	NoPartitions      atomic.Bool // attempts at partitions fail
	MembershipRenewed atomic.Bool // renewals of member locks succeed even if cut

	Without    string                                 // "watch", "batch", "lists": without this capability and the better ones
	HideOwners bool                                   // a batched read says of a held lock only that it is held
	Change     atomic.Pointer[func(*holdfast.Record)] // changes what is read
	TornReads  atomic.Int64                           // so many batched reads fail for every other name
	Releasing  time.Duration                          // how long a release takes to reach the backend

	GroupReads  atomic.Int64 // batched reads and listings
	SingleReads atomic.Int64 // reads of one record
	Attempts    atomic.Int64 // to acquire
}

func isMember(name string) bool { return strings.Contains(name, "member") }

// pass returns when a call may proceed, or an error.
func (l *Link) pass(ctx context.Context) error {
	if !l.Cut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// NewLink makes a Link after calls of prepare, which may set its fields and replace its Locker.
func NewLink(locker holdfast.Locker, prepare ...func(*Link)) *Link {
	l := &Link{Locker: locker}
	for _, p := range prepare {
		p(l)
	}
	l.Locker = driver.Intercept(l.Locker, l.intercept)
	return l
}

func (l *Link) intercept(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	name := call.Concerned().Name
	switch call.Method {
	case driver.MethodTryAcquire:
		l.Attempts.Add(1)
	case driver.MethodInspect:
		l.SingleReads.Add(1)
	case driver.MethodInspectBatch, driver.MethodList:
		l.GroupReads.Add(1)
	case driver.MethodRelease:
		time.Sleep(l.Releasing)
	case driver.MethodRenew:
		if l.MembershipRenewed.Load() && isMember(name) {
			return next(ctx, call)
		}
		cut := l.pass(ctx) // the renewal still arrives
		a := next(ctx, call)
		a.Err = errors.Join(cut, a.Err)
		return a
	case driver.MethodWake:
		wake := call.Wake
		call.Wake = func(up driver.Wakeup) {
			if !l.Cut.Load() {
				wake(up)
			}
		}
		return next(ctx, call)
	case driver.MethodClose:
		return next(ctx, call)
	}
	if err := l.pass(ctx); err != nil {
		return driver.Answer{Err: err}
	}
	if call.Method == driver.MethodTryAcquire {
		if member := isMember(name); l.NoPartitions.Load() && !member || l.NoMembership.Load() && member {
			return driver.Answer{Err: ErrInjected}
		}
	}
	a := next(ctx, call)
	switch call.Method {
	case driver.MethodInspect:
		l.change(&a.Record)
	case driver.MethodInspectBatch:
		torn := l.TornReads.Add(-1) >= 0
		for i, name := range call.Names {
			if a.Records[i].State == driver.StateHeld && l.HideOwners {
				a.Records[i] = holdfast.Record{Name: name, State: driver.StateHeld}
			}
			l.change(&a.Records[i])
			if torn && i%2 == 0 {
				a.Records[i], a.Errs[i] = holdfast.Record{}, ErrInjected
			}
		}
	}
	return a
}

func (l *Link) change(r *holdfast.Record) {
	if change := l.Change.Load(); change != nil {
		(*change)(r)
	}
}

// Capabilities implements [driver.Locker].
func (l *Link) Capabilities() driver.Capabilities {
	had := l.Locker.Capabilities()
	c := driver.Capabilities{Waker: had.Waker, Lister: had.Lister, BatchInspector: had.BatchInspector}
	switch l.Without {
	case "watch":
		c.Waker = nil
	case "batch":
		c.Waker, c.BatchInspector = nil, nil
	case "lists":
		c = driver.Capabilities{}
	}
	return c
}
