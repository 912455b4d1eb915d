package azblob

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// A process that dies between the lease and the record leaves a lock that is
// held by somebody unknown, for one TTL. No token is repeated, and its record,
// should it arrive after all, is refused.
func TestCrashBetweenLeaseAndRecord(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before a record", "after another's record"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			room := newRoom(t)
			other := room.locker()
			var before driver.Lease
			if when != "before a record" {
				before = acquire(t, other, request("n"))
				release(t, other, before)
			}
			l, w := room.wired()
			var record late
			w.next(reqMetadata, record.fault)
			w.all(reqMetadata, lost)
			w.all(reqRelease, lost)
			taken := time.Now()
			if _, err := l.TryAcquire(bounded(t), brief("n")); err == nil {
				t.Fatal("granted without a record")
			}
			earliest := taken.Add(15 * time.Second)
			r := inspect(t, other, "n")
			if r.State != driver.StateHeld || r.Owner != "" || r.Token != before.Token || r.TTL != 0 || !r.AcquiredAt.IsZero() {
				t.Errorf("the lock of the dead process: %+v, want held by nobody known", r)
			}
			for r, err := range other.List(bounded(t), "") {
				if err != nil || r.State != driver.StateHeld || r.Owner != "" {
					t.Errorf("listed: %+v, %v", r, err)
				}
			}
			wantHeld(t, other, "n")
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

// Requests that arrive after the operation is over do no harm, or none that
// outlasts a TTL.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		before := acquire(t, l, request("n"))
		release(t, l, before)
		var ghost late
		w.next(reqAcquire, ghost.fault)
		w.all(reqAcquire, lost)
		req := brief("n")
		if _, err := l.TryAcquire(bounded(t), req); err == nil || outcomeKnown(err) {
			t.Fatal(err)
		}
		w.all(reqAcquire, nil)
		lease := driver.Lease{Name: "n", ID: req.ID}
		release(t, l, lease) // the clean-up comes first
		sent := time.Now()
		if status, _, err := ghost.send(); status != http.StatusCreated || err != nil {
			t.Fatalf("%d, %v", status, err)
		}
		wantHeld(t, l, "n")
		if r := inspect(t, l, "n"); r.Owner != "" || r.State != driver.StateHeld {
			t.Errorf("%+v", r)
		}
		next := takeOver(t, l, request("n"), sent.Add(15*time.Second))
		if next.Token <= before.Token {
			t.Errorf("token %d after %d", next.Token, before.Token)
		}
	})
	t.Run("record", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		var record late
		w.next(reqMetadata, record.fault) // the second try succeeds
		first := acquire(t, l, request("n"))
		release(t, l, first)
		second := acquire(t, l, request("n"))
		if status, code, err := record.send(); status != http.StatusPreconditionFailed || err != nil {
			t.Errorf("answered %d %s, %v", status, code, err)
		}
		if r := inspect(t, l, "n"); r.Token != second.Token || r.Owner != second.Owner {
			t.Errorf("%+v", r)
		}
	})
	t.Run("data", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		lease := acquire(t, l, request("n"))
		var old late
		w.next(reqUpload, old.fault)
		at := granted(lease)
		for _, text := range []string{"old", "new"} {
			if err := l.WriteData(bounded(t), lease, []byte(text), at); err != nil {
				t.Fatal(err)
			}
			at = at.Next()
		}
		if status, code, err := old.send(); status != http.StatusPreconditionFailed || err != nil {
			t.Errorf("answered %d %s, %v", status, code, err)
		}
		if data, _, err := l.ReadData(bounded(t), "n"); string(data) != "new" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("data between a read and a write", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		ctx := bounded(t)
		lease := acquire(t, l, request("n"))
		var old late
		w.next(reqUpload, old.fault)
		w.all(reqUpload, lost)
		if err := l.WriteData(ctx, lease, []byte("old"), granted(lease)); err == nil || outcomeKnown(err) {
			t.Fatal(err)
		}
		w.all(reqUpload, nil)
		data, at, err := l.ReadData(ctx, "n")
		if data != nil || at != granted(lease) || err != nil {
			t.Fatalf("%q, %+v, %v", data, at, err)
		}
		if status, code, err := old.send(); status != http.StatusCreated || err != nil {
			t.Fatalf("answered %d %s, %v", status, code, err)
		}
		w.take()
		if err := l.WriteData(ctx, lease, []byte("new"), at); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		if sent := w.take(); !slices.Equal(sent, []string{reqRead}) {
			t.Errorf("sent %q", sent)
		}
		if data, at, err = l.ReadData(ctx, "n"); string(data) != "old" || at != granted(lease).Next() || err != nil {
			t.Errorf("%q, %+v, %v", data, at, err)
		}
		// The same, between the look at the revision and the upload; and then also twice.
		other := room.locker()
		for n := range 2 {
			w.next(reqUpload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				for range n + 1 {
					if err := other.WriteData(ctx, lease, []byte("other"), at); err != nil {
						t.Error(err)
					}
					at = at.Next()
				}
				return base.RoundTrip(r)
			})
			err := l.WriteData(ctx, lease, []byte("new"), at)
			if n == 0 && !errors.Is(err, driver.ErrConflict) || n == 1 && (err == nil || outcomeKnown(err)) {
				t.Errorf("%d writes of another: %v", n+1, err)
			}
		}
		// An own upload whose answer was lost is no other's.
		w.next(reqUpload, unanswered)
		if err := l.WriteData(ctx, lease, []byte("new"), at); err != nil {
			t.Error(err)
		}
		if data, now, err := l.ReadData(ctx, "n"); string(data) != "new" || now != at.Next() || err != nil {
			t.Errorf("%q, %+v, %v", data, now, err)
		}
	})
	t.Run("break", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		other := room.locker()
		for what, call := range map[string]func() error{
			"break":     func() error { return l.Break(bounded(t), "n") },
			"break now": func() error { return l.BreakNow(bounded(t), "n") },
		} {
			first := acquire(t, other, request("n"))
			var old late
			w.next(reqBreak, old.fault)
			if err := call(); err == nil || outcomeKnown(err) {
				t.Fatalf("%s: %v", what, err)
			}
			release(t, other, first)
			next := acquire(t, other, request("n"))
			if status, code, err := old.send(); status != http.StatusPreconditionFailed || err != nil {
				t.Errorf("%s: answered %d %s, %v", what, status, code, err)
			}
			if err := other.Renew(bounded(t), next); err != nil {
				t.Errorf("%s: the next holder: %v", what, err)
			}
			// The holder's own write is no reason to leave it alone, the next holder is.
			w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				if err := other.WriteData(bounded(t), next, []byte("x"), granted(next)); err != nil {
					t.Error(err)
				}
				return base.RoundTrip(r)
			})
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := other.Renew(bounded(t), next); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: the holder that wrote meanwhile: %v, want ErrLost", what, err)
			}
			release(t, other, next)
			next = acquire(t, other, request("n"))
			var last driver.Lease
			w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				release(t, other, next)
				last = acquire(t, other, request("n"))
				return base.RoundTrip(r)
			})
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := other.Renew(bounded(t), last); err != nil {
				t.Errorf("%s: the next holder: %v", what, err)
			}
			release(t, other, last)
		}
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		room := newRoom(t)
		l, w := room.wired()
		first := acquire(t, l, request("n"))
		var old late
		w.next(reqRelease, old.fault)
		release(t, l, first)
		second := acquire(t, l, request("n"))
		if _, _, err := old.send(); err != nil {
			t.Fatal(err)
		}
		if err := l.Renew(bounded(t), second); err != nil {
			t.Errorf("the next holder lost its lease to a late release: %v", err)
		}
	})
}

// Somebody breaks the lease between the lease and the record.
func TestBrokenBeforeTheRecord(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	other := room.locker()
	before := acquire(t, other, request("n"))
	release(t, other, before)
	l, w := room.wired()
	var snatched driver.Lease
	w.next(reqMetadata, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		if err := other.BreakNow(bounded(t), "n"); err != nil {
			t.Error(err)
		}
		snatched = acquire(t, other, request("n"))
		return base.RoundTrip(r)
	})
	if _, err := l.TryAcquire(bounded(t), request("n")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want ErrHeld: the service refused the record", err)
	}
	if r := inspect(t, l, "n"); r.Owner != snatched.Owner || r.Token != snatched.Token {
		t.Errorf("%+v", r)
	}
}

// Somebody else makes the blob and uses the lock before the request that makes
// it arrives: nothing is lost of that.
func TestMadeByAnotherMeanwhile(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	other := room.locker()
	l, w := room.wired()
	var before driver.Lease
	w.next(reqUpload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		for range 3 { // by now the token is ahead of the clock
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

// Container or blob are deleted while the lock is held: the holder loses it, the
// next acquire makes them again, and once the clock has passed the last token the
// next is greater.
func TestDeletedWhileHeld(t *testing.T) {
	t.Parallel()
	for what, remove := range map[string]func(*room, *Locker) error{
		"container": func(r *room, _ *Locker) error { _, err := r.client.Delete(bounded(r.t), nil); return err },
		"blob": func(r *room, l *Locker) error {
			if err := l.BreakNow(bounded(r.t), "n"); err != nil {
				return err
			}
			_, err := l.Blob("n").Delete(bounded(r.t), nil)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			room := newRoom(t)
			l := room.locker()
			lease := acquire(t, l, request("n"))
			if err := remove(room, l); err != nil {
				t.Fatal(err)
			}
			lostAndRepaired(t, l, lease)
		})
	}
	t.Run("everything", func(t *testing.T) {
		t.Parallel()
		service := azuritetest.Start(t, false)
		room := &room{t: t, service: service.Service, name: service.Fresh(t)}
		l := room.locker()
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
	if err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := l.WriteData(ctx, lease, []byte("x"), granted(lease)); !errors.Is(err, driver.ErrLost) {
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
	if err := l.Renew(ctx, next); err != nil {
		t.Error(err)
	}
}

// A restart that keeps what is stored keeps leases, records and tokens.
func TestServiceRestart(t *testing.T) {
	t.Parallel()
	service := azuritetest.Start(t, true)
	room := &room{t: t, service: service.Service, name: service.Fresh(t)}
	l := room.locker()
	lease := acquire(t, l, request("n"))
	if err := service.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(bounded(t), lease); err != nil {
		t.Errorf("renew after a restart: %v", err)
	}
	wantHeld(t, l, "n")
	release(t, l, lease)
	if next := acquire(t, l, request("n")); next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
}

// 64 processes start at once in an empty account.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	service := azuritetest.Shared(t)
	room := &room{t: t, service: service, name: service.Fresh(t)}
	var wins atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 64 {
		l := room.locker()
		wg.Go(func() {
			<-start
			_, err := l.TryAcquire(bounded(t), request("n"))
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

// Many fight for a lock over a bad line: never two at once, tokens rise, and
// whoever is in doubt cleans up.
func TestExclusionOverABadLine(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	cleanLine := room.locker()
	var holders atomic.Int32
	var last atomic.Uint64
	var grants atomic.Int32
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	late := end.Add(time.Minute)
	more := func() bool { return time.Now().Before(end) || grants.Load() == 0 && time.Now().Before(late) }
	for range 4 {
		l, w := room.wired()
		for _, name := range []string{reqAcquire, reqRead, reqMetadata, reqUpload, reqRenew, reqRelease} {
			w.all(name, badLine)
		}
		wg.Go(func() {
			for more() {
				req := request("n")
				lease, err := l.TryAcquire(bounded(t), req)
				if err == nil {
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					if before := last.Swap(lease.Token); before >= lease.Token {
						t.Errorf("token %d after %d", lease.Token, before)
					}
					grants.Add(1)
					if err := l.Renew(bounded(t), lease); errors.Is(err, driver.ErrLost) {
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
		t.Error("nobody was granted the lock")
	}
	if next := acquire(t, cleanLine, request("n")); next.Token <= last.Load() {
		t.Errorf("token %d after %d", next.Token, last.Load())
	}
}

// badLine fails every third request in one way or another, but never hangs.
func badLine(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	switch rand.IntN(12) {
	case 0:
		return lost(base, r)
	case 1:
		return unanswered(base, r)
	case 2:
		return answer(http.StatusServiceUnavailable, string(bloberror.ServerBusy))(base, r)
	case 3:
		return answerAfter(http.StatusInternalServerError, string(bloberror.OperationTimedOut))(base, r)
	default:
		return base.RoundTrip(r)
	}
}
