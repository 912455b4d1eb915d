package locktest

import (
	"context"
	"errors"
	"iter"
	"slices"
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

// TryAcquire implements [driver.Locker].
func (l *Link) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l.Attempts.Add(1)
	if err := l.pass(ctx); err != nil {
		return holdfast.Lease{}, err
	}
	if member := isMember(req.Name); l.NoPartitions.Load() && !member || l.NoMembership.Load() && member {
		return holdfast.Lease{}, ErrInjected
	}
	return l.Locker.TryAcquire(ctx, req)
}

// Renew implements [driver.Locker].
func (l *Link) Renew(ctx context.Context, lease holdfast.Lease) error {
	if l.MembershipRenewed.Load() && isMember(lease.Name) {
		return l.Locker.Renew(ctx, lease)
	}
	return errors.Join(l.pass(ctx), l.Locker.Renew(ctx, lease))
}

// Release implements [driver.Locker].
func (l *Link) Release(ctx context.Context, lease holdfast.Lease) error {
	time.Sleep(l.Releasing)
	if err := l.pass(ctx); err != nil {
		return err
	}
	return l.Locker.Release(ctx, lease)
}

// Inspect implements [driver.Locker].
func (l *Link) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	l.SingleReads.Add(1)
	if err := l.pass(ctx); err != nil {
		return holdfast.Record{}, err
	}
	record, err := l.Locker.Inspect(ctx, name)
	if change := l.Change.Load(); change != nil {
		(*change)(&record)
	}
	return record, err
}

// List implements [driver.Lister].
func (l *Link) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	l.GroupReads.Add(1)
	if err := l.pass(ctx); err != nil {
		return func(yield func(holdfast.Record, error) bool) { yield(holdfast.Record{}, err) }
	}
	return l.Locker.Capabilities().Lister.List(ctx, prefix)
}

// InspectBatch implements [driver.BatchInspector].
func (l *Link) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	l.GroupReads.Add(1)
	if err := l.pass(ctx); err != nil {
		return make([]holdfast.Record, len(names)), slices.Repeat([]error{err}, len(names))
	}
	records, errs := l.Locker.Capabilities().BatchInspector.InspectBatch(ctx, names)
	torn := l.TornReads.Add(-1) >= 0
	for i := range records {
		if records[i].State == driver.StateHeld && l.HideOwners {
			records[i] = holdfast.Record{Name: names[i], State: driver.StateHeld}
		}
		if change := l.Change.Load(); change != nil {
			(*change)(&records[i])
		}
		if torn && i%2 == 0 {
			records[i], errs[i] = holdfast.Record{}, ErrInjected
		}
	}
	return records, errs
}

// Watch implements [driver.Watcher].
func (l *Link) Watch(name string, wake func()) (stop func()) {
	return l.Locker.Capabilities().Watcher.Watch(name, func() {
		if !l.Cut.Load() {
			wake()
		}
	})
}

// Capabilities implements [driver.Locker].
func (l *Link) Capabilities() driver.Capabilities {
	switch l.Without {
	case "":
		return driver.Capabilities{Watcher: l, Lister: l, BatchInspector: l}
	case "watch":
		return driver.Capabilities{Lister: l, BatchInspector: l}
	case "batch":
		return driver.Capabilities{Lister: l}
	}
	return driver.Capabilities{}
}
