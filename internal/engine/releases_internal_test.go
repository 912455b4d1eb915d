package engine

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

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
