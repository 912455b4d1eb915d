package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

type faultCase struct {
	name      string
	fault     fault
	processed bool // the service processes the request, whatever it answers
	refused   bool // the answer says that it was not processed
}

// faults are the possible faults between the driver and the service.
var faults = []faultCase{
	{"the request is lost", lost, false, false},
	{"the answer is lost", unanswered, true, false},
	{"500", respond(http.StatusInternalServerError, "InternalError"), false, false},
	{"500 after it was done", respondAfter(http.StatusInternalServerError, "OperationTimedOut"), true, false},
	{"503", respond(http.StatusServiceUnavailable, "ServerBusy"), false, true},
	{"503 by a proxy after it was done", respondAfter(http.StatusServiceUnavailable, ""), true, false},
	{"503 with a time to wait", respond(http.StatusServiceUnavailable, "ServerBusy", "Retry-After", "1"), false, true},
	{"429", respond(http.StatusTooManyRequests, "TooManyRequests", "x-ms-retry-after-ms", "50"), false, true},
	{"it hangs", hang, false, false},
	{"it hangs after it was done", hangAfter, true, false},
}

// lockLifecycle runs two holders through a lock's life, one of them through the fault
// transport, and checks each step. It returns how many acquires had an unknown outcome (each
// was repeated, as a caller does) and how many of them because of a time limit, which can also
// happen on a busy machine.
func lockLifecycle(t *testing.T, l, other *Locker) (unknown, timedOut int) {
	ctx := bounded(t)
	acquireUntilGranted := func(req driver.Request) driver.Lease {
		for range 10 {
			lease, err := l.TryAcquire(ctx, req)
			if err == nil {
				return lease
			}
			unknown++
			if errors.Is(err, context.DeadlineExceeded) {
				timedOut++
			}
			wantUnknown(t, "acquire", err)
		}
		return acquire(t, l, req)
	}
	check := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	first := acquireUntilGranted(request("n"))
	wantHeld(t, other, "n")
	r, err := l.Inspect(ctx, "n")
	if check("inspect", err); r.State != driver.StateHeld || r.Owner != first.Owner || r.Token != first.Token {
		t.Errorf("held: %+v", r)
	}
	check("renew", errOf(l.Renew(ctx, first)))
	check("write data", l.WriteData(ctx, first, []byte("one"), grantRevision(first)))
	if data, _, err := l.ReadData(ctx, "n"); string(data) != "one" || err != nil {
		t.Errorf("read data: %q, %v", data, err)
	}
	for r, err := range l.List(ctx, "") {
		if err != nil || r.Name != "n" || r.Owner != first.Owner {
			t.Errorf("list: %+v, %v", r, err)
		}
	}
	check("release", l.Release(ctx, first))
	second := acquire(t, other, request("n"))
	check("release by a stranger", l.Release(ctx, first))
	check("renew by the next holder", errOf(other.Renew(ctx, second)))
	release(t, other, second)
	again := request("n")
	again.Data = []byte("two")
	third := acquireUntilGranted(again)
	wantHeld(t, other, "n")
	check("release", l.Release(ctx, third))
	fourth := acquire(t, other, request("n")) // no lease is left
	if first.Token >= second.Token || second.Token >= third.Token || third.Token >= fourth.Token {
		t.Errorf("tokens %d, %d, %d, %d", first.Token, second.Token, third.Token, fourth.Token)
	}
	if r := inspect(t, other, "n"); r.Owner != fourth.Owner || string(r.Data) != "two" {
		t.Errorf("at the end: %+v", r)
	}
	return unknown, timedOut
}

// Each request of a lock's life meets each fault once. The caller does not notice, except for
// the request that takes the lease: unless the service refused it, the call returns an unknown
// outcome once, and a repeat with the same ID resolves it.
func TestSingleFault(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	service := azuritetest.Shared(t)
	newLockers := func(t *testing.T) (*Locker, *Locker, *faultTransport) {
		store := &testContainer{t: t, service: service, name: service.Fresh(t)}
		l, w := store.lockerWithFaults()
		return withRequestTimeout(l, 2*time.Second), store.locker(), w
	}
	untroubled := func() []string {
		l, other, w := newLockers(t)
		if unknown, timedOut := lockLifecycle(t, l, other); unknown != timedOut {
			t.Errorf("%d acquires had an unknown outcome without a fault", unknown)
		}
		return w.take()
	}
	// On a busy machine a request can time out and be sent again, so two equal runs are
	// needed.
	requests := untroubled()
	for tries := 0; ; tries++ {
		again := untroubled()
		if slices.Equal(requests, again) {
			break
		}
		if requests = again; tries == 10 {
			t.Fatal("no two lives of a lock in a row have the same requests")
		}
	}
	for i, name := range requests {
		for _, kind := range faults {
			t.Run(fmt.Sprintf("%d %s/%s", i+1, name, kind.name), func(t *testing.T) {
				t.Parallel()
				limitParallelTests(t)
				l, other, w := newLockers(t)
				w.faultAt, w.faultOnce = i+1, kind.fault
				unknown, timedOut := lockLifecycle(t, l, other)
				want := 0
				if sent := len(w.take()); w.met() == "" && sent > i { // the lives before were of a busier moment, or this one
					t.Errorf("none of %d requests met the fault", sent)
				}
				if w.met() == reqAcquire && !kind.refused { // on a busy machine another request than usual may meet the fault
					want = 1
				}
				if unknown < want || unknown > want && timedOut == 0 {
					t.Errorf("%d acquires had an unknown outcome, want %d", unknown, want)
				}
			})
		}
	}
}

// A permanent fault is an error with an unknown outcome. The release by ID, which a caller
// repeats after such an acquire, leaves nothing behind.
func TestLastingFault(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	for _, name := range []string{reqAcquire, reqRead, reqMetadata, reqUpload} {
		for _, kind := range faults {
			t.Run(name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				limitParallelTests(t)
				store := newTestContainer(t)
				other := store.locker()
				before := used(t, other, "n")
				l, w := store.lockerWithFaults()
				w.all(name, kind.fault)
				req := request("n")
				if name == reqUpload {
					req.Data = []byte("data")
				}
				_, err := withRequestTimeout(l, time.Second).TryAcquire(bounded(t), req)
				if err == nil || driver.OutcomeKnown(err) || errors.Is(err, driver.ErrClosed) {
					t.Fatalf("acquire: %v, want an error that leaves the outcome open", err)
				}
				if sent := w.count(reqAcquire); name == reqAcquire && !kind.refused && sent != 1 {
					t.Errorf("the lease was asked for %d times, want once", sent)
				}
				writes := name == reqMetadata || name == reqUpload
				if r := inspect(t, other, "n"); writes && (r.State == driver.StateFree) == kind.processed {
					t.Errorf("record written: %v, and left behind: %+v", kind.processed, r)
				}
				w.all(name, nil)
				release(t, l, driver.Lease{Name: "n", ID: req.ID})
				used := inspect(t, other, "n").Token
				if after := acquire(t, other, request("n")); after.Token <= before.Token || after.Token <= used {
					t.Errorf("token %d after %d and %d", after.Token, before.Token, used)
				}
			})
		}
	}
}

// A renewal or release with a permanent fault has an unknown outcome, and succeeds when
// repeated.
func TestLastingFaultOfAHolder(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	for _, kind := range faults {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			limitParallelTests(t)
			store := newTestContainer(t)
			l, w := store.lockerWithFaults()
			lease := acquire(t, l, request("n"))
			for _, step := range []struct {
				request string
				call    func(l *Locker) error
			}{
				{reqRenew, func(l *Locker) error { return errOf(l.Renew(bounded(t), lease)) }},
				{reqUpload, func(l *Locker) error { return l.WriteData(bounded(t), lease, []byte("x"), grantRevision(lease)) }},
				{reqRelease, func(l *Locker) error { return l.Release(bounded(t), lease) }},
			} {
				w.all(step.request, kind.fault)
				if err := step.call(withRequestTimeout(l, time.Second)); err == nil || driver.OutcomeKnown(err) {
					t.Errorf("%s: %v, want an error that leaves the outcome open", step.request, err)
				}
				w.all(step.request, nil)
				err := step.call(l)
				if step.request == reqUpload && kind.processed {
					if !errors.Is(err, driver.ErrConflict) {
						t.Errorf("%s, repeated although it was done: %v, want ErrConflict", step.request, err)
					}
				} else if err != nil {
					t.Errorf("%s, repeated: %v", step.request, err)
				}
			}
			acquire(t, store.locker(), request("n"))
		})
	}
}
