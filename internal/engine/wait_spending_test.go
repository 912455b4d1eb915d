package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// frugal is a Locker that, like Azure Blob Storage, wakes nobody, says nothing of the time left, and
// reads a few names one by one and many by a listing. It counts what the service would bill.
type frugal struct {
	holdfast.Locker
	reads, lists atomic.Int64
}

const (
	listFrom = 12   // names, from which on they are listed
	listPage = 5000 // blobs
)

func (f *frugal) Info() driver.Info {
	return driver.Info{Limits: driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, Poll: 5 * time.Second}}
}

func (f *frugal) Capabilities() driver.Capabilities { return driver.Capabilities{BatchInspector: f} }

func (f *frugal) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	f.reads.Add(1)
	req.Replace = driver.Revision{}
	l, err := f.Locker.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, State: driver.StateHeld}}
	}
	return l, err
}

func (f *frugal) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	f.reads.Add(2)
	r, err := f.Locker.Inspect(ctx, name)
	return holdfast.Record{Name: name, State: r.State, Owner: r.Owner, Token: r.Token, TTL: r.TTL, Broken: r.Broken}, err
}

func (f *frugal) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	if len(names) < listFrom {
		f.reads.Add(int64(len(names)))
	} else {
		f.lists.Add(int64((len(names) + listPage - 1) / listPage))
	}
	records, errs := f.Locker.Capabilities().BatchInspector.InspectBatch(ctx, waiter, names)
	for i, r := range records {
		records[i] = holdfast.Record{Name: r.Name, State: r.State, Token: r.Token, Broken: r.Broken}
	}
	return records, errs
}

// The list prices of 10,000 operations in US dollars: hot tier, locally redundant, East US.
const priceOfReads, priceOfLists = 0.004, 0.05

// waitFor has one process wait for n names of a leader that keeps them, and returns what an hour
// costs once the leader has kept them for a while.
func waitFor(t *testing.T, n int, opts ...holdfast.Option) (reads, lists int64) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		leader := locktest.NewClient(t, store.Locker())
		f := &frugal{Locker: store.Locker()}
		follower := locktest.NewClient(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range n {
			name := fmt.Sprint("job-", i)
			if _, err := leader.Lock(ctx, name); err != nil {
				t.Fatal(err)
			}
			waiting.Go(func() {
				if _, err := follower.Lock(ctx, name, opts...); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		time.Sleep(3 * time.Minute) // the leader has renewed for many TTLs
		const part = 4              // of an hour, since hundreds of waiters take real time
		reads, lists = f.reads.Load(), f.lists.Load()
		time.Sleep(time.Hour / part)
		reads, lists = part*(f.reads.Load()-reads), part*(f.lists.Load()-lists)
		cancel()
		waiting.Wait()
	})
	return reads, lists
}

// A process that waits for locks of a steady leader sends a third of the requests that it would
// send at the backend's poll interval, whether it waits for one name or for hundreds.
func TestWaitingForASteadyHolderCostsLess(t *testing.T) {
	for _, n := range []int{1, 100, 250} {
		fixed, fixedLists := waitFor(t, n, holdfast.WithPollInterval(5*time.Second))
		reads, lists := waitFor(t, n)
		cost := func(reads, lists int64) float64 {
			return (float64(reads)*priceOfReads + float64(lists)*priceOfLists) / 10_000 * 730
		}
		t.Logf("%d names, an hour: %d reads and %d listings, %.2f USD a month; with a poll interval of 5 s %d and %d, %.2f USD",
			n, reads, lists, cost(reads, lists), fixed, fixedLists, cost(fixed, fixedLists))
		if n < listFrom && (reads > 300 || reads < 190 || fixed < 600) || n >= listFrom && (reads > 0 || lists > 400 || fixedLists < 700) {
			t.Errorf("%d names: %d reads and %d listings an hour; with a poll interval of 5 s %d and %d", n, reads, lists, fixed, fixedLists)
		}
	}
}
