package azblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

type trouble struct {
	name    string
	f       fault
	done    bool // by the service, whatever it says
	refused bool // the answer says that it was not done
}

// faults are the kinds of trouble between the driver and the service.
var faults = []trouble{
	{"the request is lost", lost, false, false},
	{"the answer is lost", unanswered, true, false},
	{"500", answer(http.StatusInternalServerError, "InternalError"), false, false},
	{"500 after it was done", answerAfter(http.StatusInternalServerError, "OperationTimedOut"), true, false},
	{"503", answer(http.StatusServiceUnavailable, "ServerBusy"), false, true},
	{"503 by a proxy after it was done", answerAfter(http.StatusServiceUnavailable, ""), true, false},
	{"503 with a time to wait", answer(http.StatusServiceUnavailable, "ServerBusy", "Retry-After", "1"), false, true},
	{"429", answer(http.StatusTooManyRequests, "TooManyRequests", "x-ms-retry-after-ms", "50"), false, true},
	{"it hangs", hang, false, false},
	{"it hangs after it was done", hangAfter, true, false},
}

// life is what two holders do with a lock, one of them through the wire, and
// what must be true at each step. It returns how many acquires ended in doubt; each
// was asked for again, as its caller does; and how many of them for want of time,
// which may also happen on a busy machine.
func life(t *testing.T, l, other *Locker) (doubts, late int) {
	ctx := bounded(t)
	insist := func(req driver.Request) driver.Lease {
		for range 10 {
			lease, err := l.TryAcquire(ctx, req)
			if err == nil {
				return lease
			}
			doubts++
			if errors.Is(err, context.DeadlineExceeded) {
				late++
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
	first := insist(request("n"))
	wantHeld(t, other, "n")
	if r := inspect(t, l, "n"); r.State != driver.StateHeld || r.Owner != first.Owner || r.Token != first.Token {
		t.Errorf("held: %+v", r)
	}
	check("renew", l.Renew(ctx, first))
	check("write data", l.WriteData(ctx, first, []byte("one"), granted(first)))
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
	check("renew by the next holder", other.Renew(ctx, second))
	release(t, other, second)
	again := request("n")
	again.Data = []byte("two")
	third := insist(again)
	wantHeld(t, other, "n")
	check("release", l.Release(ctx, third))
	fourth := acquire(t, other, request("n")) // no lease is left behind
	if first.Token >= second.Token || second.Token >= third.Token || third.Token >= fourth.Token {
		t.Errorf("tokens %d, %d, %d, %d", first.Token, second.Token, third.Token, fourth.Token)
	}
	if r := inspect(t, other, "n"); r.Owner != fourth.Owner || string(r.Data) != "two" {
		t.Errorf("at the end: %+v", r)
	}
	return doubts, late
}

// Each request of a lock's life meets each fault once. Nobody notices, but for the
// one that takes the lease: unless the service refused it, the caller hears of the
// doubt, once, and asking again with the same ID resolves it.
func TestOneFault(t *testing.T) {
	t.Parallel()
	service := azuritetest.Shared(t)
	newLockers := func(t *testing.T) (*Locker, *Locker, *wire) {
		room := &room{t: t, service: service, name: service.Fresh(t)}
		l, w := room.wired()
		return hasty(l, 2*time.Second), room.locker(), w
	}
	untroubled := func() []string {
		l, other, w := newLockers(t)
		if doubts, late := life(t, l, other); doubts != late {
			t.Errorf("%d acquires in doubt without a fault", doubts)
		}
		return w.take()
	}
	// On a busy machine a request can be late and sent again: that is not what is wanted.
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
				takeTurns(t)
				l, other, w := newLockers(t)
				w.at, w.once = i+1, kind.f
				want := 0
				if name == reqAcquire && !kind.refused {
					want = 1
				}
				if doubts, late := life(t, l, other); doubts < want || doubts > want && late == 0 {
					t.Errorf("%d acquires in doubt, want %d", doubts, want)
				}
			})
		}
	}
}

// A fault that lasts is an error without a meaning. The release by ID, which the
// caller of an acquire in doubt repeats, leaves nothing behind.
func TestLastingFault(t *testing.T) {
	t.Parallel()
	for _, name := range []string{reqAcquire, reqRead, reqMetadata, reqUpload} {
		for _, kind := range faults {
			t.Run(name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				takeTurns(t)
				room := newRoom(t)
				other := room.locker()
				before := acquire(t, other, request("n"))
				release(t, other, before)
				l, w := room.wired()
				w.all(name, kind.f)
				req := request("n")
				if name == reqUpload {
					req.Data = []byte("data")
				}
				_, err := hasty(l, time.Second).TryAcquire(bounded(t), req)
				if err == nil || outcomeKnown(err) || errors.Is(err, driver.ErrClosed) {
					t.Fatalf("acquire: %v, want an error that says nothing of the outcome", err)
				}
				if sent := w.count(reqAcquire); name == reqAcquire && !kind.refused && sent != 1 {
					t.Errorf("the lease was asked for %d times, want once", sent)
				}
				writes := name == reqMetadata || name == reqUpload
				if r := inspect(t, other, "n"); writes && (r.State == driver.StateFree) == kind.done {
					t.Errorf("record written: %v, and left behind: %+v", kind.done, r)
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

// A renewal or release that fails for good is in doubt, and works when repeated.
func TestLastingFaultOfAHolder(t *testing.T) {
	t.Parallel()
	for _, kind := range faults {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			takeTurns(t)
			room := newRoom(t)
			l, w := room.wired()
			lease := acquire(t, l, request("n"))
			for _, step := range []struct {
				request string
				call    func(l *Locker) error
			}{
				{reqRenew, func(l *Locker) error { return l.Renew(bounded(t), lease) }},
				{reqUpload, func(l *Locker) error { return l.WriteData(bounded(t), lease, []byte("x"), granted(lease)) }},
				{reqRelease, func(l *Locker) error { return l.Release(bounded(t), lease) }},
			} {
				w.all(step.request, kind.f)
				if err := step.call(hasty(l, time.Second)); err == nil || outcomeKnown(err) {
					t.Errorf("%s: %v, want an error that says nothing of the outcome", step.request, err)
				}
				w.all(step.request, nil)
				err := step.call(l)
				if step.request == reqUpload && kind.done {
					if !errors.Is(err, driver.ErrConflict) {
						t.Errorf("%s, repeated although it was done: %v, want ErrConflict", step.request, err)
					}
				} else if err != nil {
					t.Errorf("%s, repeated: %v", step.request, err)
				}
			}
			acquire(t, room.locker(), request("n"))
		})
	}
}

// The service's wish to wait is respected, and not waited for in vain.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		room := newRoom(t)
		l, w := room.wired()
		lease := acquire(t, l, request("n"))

		w.next(reqRenew, answer(status, "ServerBusy", "Retry-After", "1"))
		start := time.Now()
		if err := l.Renew(bounded(t), lease); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < time.Second || w.count(reqRenew) != 2 {
			t.Errorf("renewed after %v with %d requests, want 2 and a second between them", took, w.count(reqRenew))
		}

		w.take()
		w.next(reqRenew, answer(status, "ServerBusy", "Retry-After", "60"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		start = time.Now()
		err := l.Renew(ctx, lease)
		cancel()
		var busy *StorageError
		if !errors.As(err, &busy) || busy.Status != status || busy.Code != "ServerBusy" {
			t.Errorf("got %v, want the service's %d", err, status)
		}
		if took := time.Since(start); took > 5*time.Second || w.count(reqRenew) != 1 {
			t.Errorf("gave up after %v and %d requests, want at once", took, w.count(reqRenew))
		}
	}
}

// A service that hangs holds nobody up beyond the context, and nothing is sent
// after that.
func TestHangEndsWithTheContext(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	lease := acquire(t, l, request("n"))
	w.all(reqRenew, hang)
	w.take()
	ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := hasty(l, 100*time.Millisecond).Renew(ctx, lease)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	sent := w.count(reqRenew)
	if sent < 2 {
		t.Errorf("%d requests, want several within the time", sent)
	}
	time.Sleep(time.Second)
	if again := w.count(reqRenew); again != sent {
		t.Errorf("%d more requests after the context's end", again-sent)
	}
}

// Each try has a limit although the client has none and the context is long.
func TestTryLimit(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	lease := acquire(t, l, request("n"))
	w.next(reqRenew, hang)
	start := time.Now()
	if err := hasty(l, time.Second).Renew(bounded(t), lease); err != nil || time.Since(start) < time.Second || time.Since(start) > 10*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// A break is never sent twice: the second could hit the next holder.
func TestBreakIsSentOnce(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	for what, breakIt := range map[string]func() error{
		"Break":    func() error { return l.Break(bounded(t), "n") },
		"BreakNow": func() error { return l.BreakNow(bounded(t), "n") },
	} {
		lease := acquire(t, l, request("n"))
		w.take()
		w.next(reqBreak, unanswered)
		if err := breakIt(); err == nil || outcomeKnown(err) {
			t.Errorf("%s without an answer: %v", what, err)
		}
		if n := w.count(reqBreak); n != 1 {
			t.Errorf("%s was sent %d times", what, n)
		}
		release(t, l, lease)
	}
}

// A lock's data may have the most bytes, also on a line that takes seconds to
// carry them: time limits grow with the data.
func TestBigDataOnASlowLine(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	slow := func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(3 * time.Second):
			return base.RoundTrip(r)
		case <-r.Context().Done():
			discard(r)
			return nil, r.Context().Err()
		}
	}
	req := request("n")
	req.Data = bytes.Repeat([]byte("12345678"), limits.MaxData/8)
	release(t, l, acquire(t, l, request("n"))) // makes the blob
	w.take()
	w.all(reqUpload, slow)
	w.all(reqDownload, slow)
	l = hasty(l, 2*time.Second)
	for tries := 0; ; tries++ {
		_, err := l.TryAcquire(bounded(t), req)
		if err == nil {
			break
		}
		if tries == 5 || !errors.Is(err, context.DeadlineExceeded) || w.count(reqUpload) > 0 {
			t.Fatal(err) // it is the small requests that a busy machine may delay
		}
	}
	got, _, err := l.ReadData(bounded(t), "n")
	if err != nil || !bytes.Equal(got, req.Data) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if w.count(reqUpload) != 1 || w.count(reqDownload) != 1 {
		t.Errorf("sent %q: data were cut off and sent again", w.take())
	}
}
