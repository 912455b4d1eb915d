package azblob

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// rawLease is the client of a program that leases a blob by itself, with the SDK alone.
func rawLease(t *testing.T, store *testContainer, name string) *lease.BlobClient {
	t.Helper()
	c, err := lease.NewBlobClient(store.client.NewBlockBlobClient(name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A program that leases a blob by itself and a Locker for the same blob exclude each other, since
// the lease is the same. The blob keeps its contents.
func TestRawLeaseExcludes(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store, ctx := newTestContainer(t), bounded(t)
	blob := store.client.NewBlockBlobClient("job")
	if _, err := blob.UploadBuffer(ctx, []byte("contents"), &blockblob.UploadBufferOptions{}); err != nil {
		t.Fatal(err)
	}
	raw, l := rawLease(t, store, "job"), store.locker()
	for _, seconds := range []int32{15, -1} { // -1 does not end
		if _, err := raw.AcquireLease(ctx, seconds, nil); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, l, "job")
		if _, err := raw.RenewLease(ctx, nil); err != nil {
			t.Fatalf("after a refused acquire: %v", err)
		}
		if _, err := raw.ReleaseLease(ctx, nil); err != nil {
			t.Fatal(err)
		}
		held := acquire(t, l, request("job"))
		if _, err := raw.AcquireLease(ctx, seconds, nil); !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) {
			t.Errorf("a raw lease of a held lock: %v", err)
		}
		if _, err := l.Renew(ctx, held); err != nil {
			t.Error(err)
		}
		release(t, l, held)
	}
	if got := blobContents(t, l, "job"); !bytes.Contains([]byte(got), []byte("contents")) {
		t.Errorf("the blob has %q", got)
	}
	// A raw break is a loss.
	held := acquire(t, l, request("job"))
	if _, err := rawLease(t, store, "job").BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32)}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(ctx, held); !errors.Is(err, driver.ErrLost) {
		t.Errorf("after a raw break: %v", err)
	}
}

// A fleet moves from raw leases to a Locker in one rollout: no two programs are at work together.
func TestRolloutFromRawLeases(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store, ctx := newTestContainer(t), t.Context() // each hold has a time limit
	if _, err := store.client.NewBlockBlobClient("job").UploadBuffer(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int32
	work := func(who string, holds *atomic.Int32) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%s holds the lock together with %d others", who, n-1)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		inside.Add(-1)
		holds.Add(1)
	}
	// loop calls attempt again and again until stop is called.
	loop := func(attempt func()) (stop func()) {
		var ended sync.WaitGroup
		end := make(chan struct{})
		ended.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(rand.N(20 * time.Millisecond)):
					attempt()
				}
			}
		})
		stop = sync.OnceFunc(func() { close(end); ended.Wait() })
		t.Cleanup(stop)
		return stop
	}
	var old, migrated atomic.Int32
	oldProgram := func() func() {
		raw := rawLease(t, store, "job")
		return loop(func() {
			switch _, err := raw.AcquireLease(ctx, 60, nil); {
			case err == nil:
				work("a raw lease", &old)
				if _, err := raw.ReleaseLease(ctx, nil); err != nil {
					t.Error(err)
				}
			case !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent):
				t.Error(err)
			}
		})
	}
	newProgram := func() func() {
		l := store.locker()
		return loop(func() {
			switch held, err := l.TryAcquire(ctx, request("job")); {
			case err == nil:
				work("a Locker", &migrated)
				if err := l.Release(ctx, held); err != nil {
					t.Error(err)
				}
			case !errors.Is(err, driver.ErrHeld):
				t.Error(err)
			}
		})
	}
	progress := func(phase string, counts ...*atomic.Int32) {
		t.Helper()
		const enough, holdWithin = 5, 2 * time.Minute
		for _, count := range counts {
			before := count.Load()
			for last, deadline := before, time.Now().Add(holdWithin); ; time.Sleep(5 * time.Millisecond) {
				now := count.Load()
				if now >= before+enough {
					break
				}
				if now > last {
					last, deadline = now, time.Now().Add(holdWithin)
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d holds, and no other within %v", phase, now-before, holdWithin)
				}
			}
		}
	}
	stops := []func(){oldProgram(), oldProgram()}
	progress("old", &old)
	newStops := []func(){newProgram(), newProgram()}
	progress("mixed", &old, &migrated)
	for _, stop := range stops {
		stop()
	}
	progress("new", &migrated)
	for _, stop := range newStops { // the context ends before the cleanup of the test
		stop()
	}
}
