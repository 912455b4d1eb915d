package azblob

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A request that arrives after its operation is over does no harm, or none that lasts longer
// than one TTL.
func TestLateRequests(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		before := used(t, l, "n")
		var delayed delayedRequest
		w.next(reqAcquire, delayed.fault)
		w.all(reqAcquire, lost)
		req := shortRequest("n")
		if _, err := l.TryAcquire(bounded(t), req); err == nil || driver.OutcomeKnown(err) {
			t.Fatal(err)
		}
		w.all(reqAcquire, nil)
		lease := driver.Lease{Name: "n", ID: req.ID}
		release(t, l, lease) // the cleanup comes first
		sent := time.Now()
		if status, _, err := delayed.send(); status != http.StatusCreated || err != nil {
			t.Fatalf("%d, %v", status, err)
		}
		earliest := sent.Add(15 * time.Second)
		if r := inspect(t, l, "n"); r.Owner != "" || r.State != driver.StateHeld && time.Now().Before(earliest) {
			t.Errorf("%+v", r)
		}
		next := takeOver(t, l, request("n"), earliest)
		if next.Token <= before.Token {
			t.Errorf("token %d after %d", next.Token, before.Token)
		}
	})
	t.Run("record", func(t *testing.T) {
		t.Parallel()
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		var record delayedRequest
		w.next(reqMetadata, record.fault) // the second attempt succeeds
		used(t, l, "n")
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
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		lease := acquire(t, l, request("n"))
		var old delayedRequest
		w.next(reqUpload, old.fault)
		at := grantRevision(lease)
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
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		ctx := bounded(t)
		lease := acquire(t, l, request("n"))
		var old delayedRequest
		w.next(reqUpload, old.fault)
		w.all(reqUpload, lost)
		if err := l.WriteData(ctx, lease, []byte("old"), grantRevision(lease)); err == nil || driver.OutcomeKnown(err) {
			t.Fatal(err)
		}
		w.all(reqUpload, nil)
		data, at, err := l.ReadData(ctx, "n")
		if data != nil || at != grantRevision(lease) || err != nil {
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
		if data, at, err = l.ReadData(ctx, "n"); string(data) != "old" || at != grantRevision(lease).Next() || err != nil {
			t.Errorf("%q, %+v, %v", data, at, err)
		}
		// The same between the read of the revision and the upload, with one and with two
		// other writes.
		other := store.locker()
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
			if n == 0 && !errors.Is(err, driver.ErrConflict) || n == 1 && (err == nil || driver.OutcomeKnown(err)) {
				t.Errorf("%d writes of another: %v", n+1, err)
			}
		}
		// The call recognizes its own upload whose answer was lost.
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
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		other := store.locker()
		for what, call := range map[string]func() error{
			"break":     func() error { return l.Break(bounded(t), "n", driver.BreakAnybody()) },
			"break now": func() error { return l.BreakNow(bounded(t), "n", driver.BreakAnybody()) },
		} {
			first := acquire(t, other, request("n"))
			var old delayedRequest
			w.next(reqBreak, old.fault)
			if err := call(); err == nil || driver.OutcomeKnown(err) {
				t.Fatalf("%s: %v", what, err)
			}
			release(t, other, first)
			next := acquire(t, other, request("n"))
			if status, code, err := old.send(); status != http.StatusPreconditionFailed || err != nil {
				t.Errorf("%s: answered %d %s, %v", what, status, code, err)
			}
			if _, err := other.Renew(bounded(t), next); err != nil {
				t.Errorf("%s: the next holder: %v", what, err)
			}
			// A write of the holder does not stop the break, the next holder does.
			w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				if err := other.WriteData(bounded(t), next, []byte("x"), grantRevision(next)); err != nil {
					t.Error(err)
				}
				return base.RoundTrip(r)
			})
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := other.Renew(bounded(t), next); !errors.Is(err, driver.ErrLost) {
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
			if _, err := other.Renew(bounded(t), last); err != nil {
				t.Errorf("%s: the next holder: %v", what, err)
			}
			release(t, other, last)
		}
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		first := acquire(t, l, request("n"))
		var old delayedRequest
		w.next(reqRelease, old.fault)
		release(t, l, first)
		second := acquire(t, l, request("n"))
		if _, _, err := old.send(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Renew(bounded(t), second); err != nil {
			t.Errorf("the next holder lost its lease to a late release: %v", err)
		}
	})
}
