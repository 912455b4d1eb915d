package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// A process may hold 100,000 locks. Go gives 288 bytes to what needs more than 256, and 320 to what needs one more than 288.
func TestHoldIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Hold{}); size > 288 {
		t.Errorf("a hold has %d bytes, at most 288 are wanted", size)
	}
}

// Without a hook nothing is between a Client and its driver.
func TestClientWithoutAHookCallsItsDriver(t *testing.T) {
	l := memory.New()
	for _, hook := range []telemetry.Hook{nil, telemetry.Ignore{}} {
		c, err := New(l, Config{Hook: hook})
		if err != nil {
			t.Fatal(err)
		}
		if direct := c.locker == l; direct != (hook == nil) {
			t.Errorf("with the hook %v the calls go to a %T", hook, c.locker)
		}
		if c.Locker() != l {
			t.Errorf("with the hook %v the program gets a %T", hook, c.Locker())
		}
	}
}

// Dropped events are counted in the next line that is logged, also if the event that has the count is not.
func TestLogCountsDroppedEvents(t *testing.T) {
	var out bytes.Buffer
	log, now := logTo(slog.New(slog.NewTextHandler(&out, nil))), time.Now()
	failed := event.Event{Type: event.Error, Name: "job", Op: "acquire", Time: now}
	log(failed)
	repeated := failed
	repeated.Dropped = 3
	log(repeated)                                                              // a repetition: no line
	log(event.Event{Type: event.Acquired, Name: "job", Time: now, Dropped: 4}) // below the level
	log(event.Event{Type: event.Lost, Name: "job", Time: now, Dropped: 5})     // 12 in all
	log(event.Event{Type: event.Lost, Name: "another job", Time: now})         // none since
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], "dropped=12") || strings.Contains(lines[0]+lines[2], "dropped") {
		t.Errorf("logged:\n%s", out.String())
	}
}

// An event without a line of its own would be logged as a failure.
func TestEveryEventHasALine(t *testing.T) {
	for typ := event.Acquired; typ < event.End; typ++ {
		_, message := logLine(event.Event{Type: typ, Op: "a call"})
		if failed := message == failureLine("a call", nil); failed != (typ == event.Error) {
			t.Errorf("%s is logged as %q", typ, message)
		}
	}
}

// Very many names that were lost, and are now held by other processes, do not prevent the log from
// showing that a later loss has ended.
func TestEndOfALossIsLoggedAfterVeryManyLosses(t *testing.T) {
	var out bytes.Buffer
	log := logTo(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range maxLostNames + 100 {
		log(event.Event{Type: event.Lost, Name: fmt.Sprint("tenant-", i)})
	}
	log(event.Event{Type: event.Lost, Name: "billing"})
	log(event.Event{Type: event.Acquired, Name: "billing"})
	if !strings.Contains(out.String(), "again after a loss") {
		t.Error("the lock is held again, and that is not logged at the default level")
	}
}

// A queue exists while this process waits for the lock or holds it. A name that is used no more
// leaves nothing in memory.
func TestEmptyQueuesAreDropped(t *testing.T) {
	var qs queues
	h := &Hold{}
	h.entry.Lease.Name = "job"
	first := qs.join("job", settings.Settings{Slots: 1})
	second := qs.join("job", settings.Settings{Slots: 1})
	qs.note("job", driver.ErrHeld)
	qs.took(h, 0)
	qs.leave(first)
	if len(qs.byName) != 1 || second.isAdmitted {
		t.Errorf("%d queues; the second has its turn: %v", len(qs.byName), second.isAdmitted)
	}
	qs.freed(h, time.Second)
	if len(qs.byName) != 1 || !second.isAdmitted {
		t.Errorf("%d queues; the second has its turn: %v", len(qs.byName), second.isAdmitted)
	}
	qs.leave(second)
	qs.took(h, 0) // by a caller that does not wait
	qs.freed(h, time.Second)
	qs.freed(h, time.Second) // lost, then released
	if len(qs.byName) != 0 {
		t.Errorf("%d queues are left", len(qs.byName))
	}
}

// After the cleanup of a request that may have been granted, the first waiter of this process sends a request: the grant has ended the
// position that they share. Waiters for slots have no position.
func TestAsksAgain(t *testing.T) {
	qs := &queues{byName: map[string]*queue{}}
	first, second := qs.join("job", settings.Settings{Slots: 1}), qs.join("job", settings.Settings{Slots: 1})
	slots := qs.join("pool", settings.Settings{Slots: 2})
	asked := func(w *localWaiter) bool { return len(qs.takeFreed(w)) == 1 && len(w.slotFreed) == 1 }
	for _, name := range []string{"job", "pool", "nobody's"} {
		qs.asksAgain(name)
	}
	if !asked(first) || asked(second) || asked(slots) {
		t.Error("not the first waiter, or another")
	}
}

// A panic of the driver goes on where the release is waited for. If the call was given up as hung, nobody waits, and it goes
// on in the goroutine of the call, where it ends the program.
func TestPanicOfAReleaseIsNotLost(t *testing.T) {
	panics := func(call func()) (v any) {
		defer func() { v = recover() }()
		call()
		return nil
	}
	r := newReleases(t.Context(), noLocker{})
	for _, hung := range []bool{false, true} {
		w := &waitingRelease{alone: func() error { panic("oops") }, done: make(chan struct{})}
		call := r.begin([]*waitingRelease{w})
		if hung {
			call.Hung()
		}
		v := panics(call.Do)
		<-w.done
		switch seen := panics(func() { _ = w.result() }); {
		case hung && (v != "oops" || seen != nil || !errors.Is(w.err, timing.ErrHung)):
			t.Errorf("given up: the call panics with %v, and who waits with %v; the result is %v", v, seen, w.err)
		case !hung && (v != nil || seen == nil):
			t.Errorf("not given up: the call panics with %v, and who waits with %v", v, seen)
		}
	}
}

// noLocker has no optional capabilities, and answers nothing.
type noLocker struct{ driver.Locker }

func (noLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }
