package azblob

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A process that ends between the lease and the record leaves a lock that is held by an
// unknown owner for one TTL. No token is repeated, and if its record arrives later, it is
// refused.
func TestCrashBetweenLeaseAndRecord(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	for _, when := range []string{"before a record", "after another's record"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			store := newTestContainer(t)
			other := store.locker()
			var before driver.Lease
			if when != "before a record" {
				before = used(t, other, "n")
			}
			l, w := store.lockerWithFaults()
			var record delayedRequest
			w.next(reqMetadata, record.fault)
			w.all(reqMetadata, lost)
			w.all(reqRelease, lost)
			taken := time.Now()
			if _, err := l.TryAcquire(bounded(t), shortRequest("n")); err == nil {
				t.Fatal("granted without a record")
			}
			earliest := taken.Add(15 * time.Second)
			held := func() bool { return time.Now().Before(earliest) } // on a busy machine the lease may have ended by now
			r := inspect(t, other, "n")
			if held() && (r.State != driver.StateHeld || r.Owner != "" || r.Token != 0 || r.TTL != 0 || !r.AcquiredAt.IsZero()) {
				t.Errorf("the lock of the ended process: %+v, want held by an unknown owner", r)
			}
			for r, err := range other.List(bounded(t), "") {
				if held() && (err != nil || r.State != driver.StateHeld || r.Owner != "") {
					t.Errorf("listed: %+v, %v", r, err)
				}
			}
			next := takeOver(t, other, request("n"), earliest)
			if next.Token <= before.Token {
				t.Errorf("token %d after %d", next.Token, before.Token)
			}
			if status, code, err := record.send(); status != http.StatusPreconditionFailed || err != nil {
				t.Errorf("the late record was answered %d %s, %v; want 412", status, code, err)
			}
			if r := inspect(t, other, "n"); r.Owner != next.Owner || r.Token != next.Token {
				t.Errorf("after the late record: %+v", r)
			}
		})
	}
}

// The lease is broken between the lease and the record.
func TestBreakBeforeTheRecord(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	other := store.locker()
	used(t, other, "n")
	l, w := store.lockerWithFaults()
	var snatched driver.Lease
	w.next(reqMetadata, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		if err := other.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
			t.Error(err)
		}
		snatched = acquire(t, other, request("n"))
		return base.RoundTrip(r)
	})
	if _, err := tryAcquire(t, l, request("n")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want ErrHeld: the service refused the record", err)
	}
	if r := inspect(t, l, "n"); r.Owner != snatched.Owner || r.Token != snatched.Token {
		t.Errorf("%+v", r)
	}
}

// Another process creates the blob and uses the lock before this request to create it arrives.
// Nothing of that is lost.
func TestBlobCreatedByAnotherProcess(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	other := store.locker()
	l, w := store.lockerWithFaults()
	var before driver.Lease
	w.next(reqUpload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		for range 3 { // now the token is ahead of the clock
			req := request("n")
			req.Data = []byte("kept")
			before = acquire(t, other, req)
			release(t, other, before)
		}
		return base.RoundTrip(r)
	})
	if after := acquire(t, l, request("n")); after.Token <= before.Token {
		t.Errorf("token %d after %d", after.Token, before.Token)
	}
	if r := inspect(t, l, "n"); string(r.Data) != "kept" {
		t.Errorf("the data are %q", r.Data)
	}
}

// The data are written, the answer is lost, and the lease ends before the request is repeated: that is not reported as a loss before
// the write.
func TestDataWrittenBeforeALoss(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	for _, written := range []bool{true, false} {
		lease := acquire(t, l, request("n"))
		w.next(reqRead, lost) // a read that is repeated puts nothing in doubt
		w.next(reqUpload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			if written {
				if err := deliver(base, r); err != nil {
					return nil, err
				}
			}
			release(t, other, lease) // or an operator breaks it
			if written {
				return nil, errBroken
			}
			return base.RoundTrip(r)
		})
		err := l.WriteData(bounded(t), lease, []byte("x"), grantRevision(lease))
		if err == nil || errors.Is(err, driver.ErrLost) == written {
			t.Errorf("written: %t, and WriteData returned %v", written, err)
		}
		w.next(reqRead, lost)
		if err := l.WriteData(bounded(t), lease, []byte("y"), grantRevision(lease)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("lost before the call, whose read is repeated: %v", err)
		}
	}
}

// Container or blob are deleted while the lock is held: the holder loses it, the next acquire
// creates them again, and once the clock has passed the last token, the next one is greater.
func TestDeletedWhileHeld(t *testing.T) {
	t.Parallel()
	for what, remove := range map[string]func(*testContainer, *Locker) error{
		"container": func(r *testContainer, _ *Locker) error { _, err := r.client.Delete(bounded(r.t), nil); return err },
		"blob": func(r *testContainer, l *Locker) error {
			if err := l.BreakNow(bounded(r.t), "n", driver.BreakAnybody()); err != nil {
				return err
			}
			_, err := l.Blob("n").Delete(bounded(r.t), nil)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			store := newTestContainer(t)
			l := store.locker()
			lease := acquire(t, l, request("n"))
			if err := remove(store, l); err != nil {
				t.Fatal(err)
			}
			lostAndRepaired(t, l, lease)
		})
	}
	t.Run("everything", func(t *testing.T) {
		t.Parallel()
		service := azuritetest.Start(t, false)
		store := &testContainer{t: t, service: service.Service, name: service.Fresh(t)}
		l := store.locker()
		lease := acquire(t, l, request("n"))
		if err := service.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		lostAndRepaired(t, l, lease)
	})
}

func lostAndRepaired(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	ctx := bounded(t)
	if _, err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("write data: %v", err)
	}
	release(t, l, lease)
	if r := inspect(t, l, "n"); r.State != driver.StateFree || r.Token != 0 {
		t.Errorf("%+v", r)
	}
	// The service's Date has whole seconds.
	time.Sleep(time.Until(time.UnixMilli(int64(lease.Token)).Add(1100 * time.Millisecond)))
	next := acquire(t, l, request("n"))
	if next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
	if _, err := l.Renew(ctx, next); err != nil {
		t.Error(err)
	}
}

// A restart of the service with persistent storage keeps leases, records and tokens.
func TestServiceRestart(t *testing.T) {
	serverprocess.Long(t, "waits for time limits of requests")
	t.Parallel()
	service := azuritetest.Start(t, true)
	store := &testContainer{t: t, service: service.Service, name: service.Fresh(t)}
	l := store.locker()
	lease := acquire(t, l, request("n"))
	if err := service.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Errorf("renew after a restart: %v", err)
	}
	wantHeld(t, l, "n")
	release(t, l, lease)
	if next := acquire(t, l, request("n")); next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
}

// 64 processes start at the same time with an empty account.
func TestOneWinnerAmongMany(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	service := azuritetest.Shared(t)
	store := &testContainer{t: t, service: service, name: service.Fresh(t)}
	var wins atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 64 {
		l := store.locker()
		wg.Go(func() {
			<-start
			_, err := tryAcquire(t, l, request("n"))
			if err == nil {
				wins.Add(1)
			} else if !errors.Is(err, driver.ErrHeld) {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := wins.Load(); n != 1 {
		t.Errorf("%d were granted the lock, want 1", n)
	}
}

// Many processes compete for a lock over an unreliable connection: never two hold it, tokens
// rise, and each process cleans up when an outcome is unknown.
func TestExclusionOverAnUnreliableConnection(t *testing.T) {
	serverprocess.Long(t, "waits for time limits of requests")
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	cleanLine := store.locker()
	var holders atomic.Int32
	var last atomic.Uint64
	var grants atomic.Int32
	var late atomic.Bool // a request may arrive after its call has ended
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	hung := end.Add(time.Minute)
	more := func() bool { return time.Now().Before(end) || grants.Load() == 0 && time.Now().Before(hung) }
	for range 4 {
		l, w := store.lockerWithFaults()
		for _, name := range []string{reqAcquire, reqRead, reqMetadata, reqUpload, reqRenew, reqRelease} {
			w.all(name, unreliable)
		}
		wg.Go(func() {
			for more() {
				req := request("n")
				lease, err := l.TryAcquire(bounded(t), req)
				if errors.Is(err, context.DeadlineExceeded) {
					late.Store(true)
				}
				if err == nil {
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					if before := last.Swap(lease.Token); before >= lease.Token {
						t.Errorf("token %d after %d", lease.Token, before)
					}
					grants.Add(1)
					if _, err := l.Renew(bounded(t), lease); errors.Is(err, driver.ErrLost) {
						t.Errorf("renew: %v", err)
					}
					holders.Add(-1)
				}
				if !errors.Is(err, driver.ErrHeld) {
					release(t, cleanLine, driver.Lease{Name: "n", ID: req.ID})
				}
			}
		})
	}
	wg.Wait()
	if grants.Load() == 0 {
		t.Error("no process was granted the lock")
	}
	if late.Load() { // such a request may have left a lease
		if err := cleanLine.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
			t.Error(err)
		}
	}
	if next := acquire(t, cleanLine, request("n")); next.Token <= last.Load() {
		t.Errorf("token %d after %d", next.Token, last.Load())
	}
}

// unreliable fails every third request in one of several ways, and never hangs.
func unreliable(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	switch rand.IntN(12) {
	case 0:
		return lost(base, r)
	case 1:
		return unanswered(base, r)
	case 2:
		return respond(http.StatusServiceUnavailable, string(bloberror.ServerBusy))(base, r)
	case 3:
		return respondAfter(http.StatusInternalServerError, string(bloberror.OperationTimedOut))(base, r)
	default:
		return base.RoundTrip(r)
	}
}
