package holdfasttest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faulty"
)

// ErrUnavailable is the error of every call while the backend fails.
var ErrUnavailable = errors.New("the test made the backend unavailable")

// Faults are what can go wrong between processes and the backend. Those of a [Backend] affect all
// processes, those of a [Process] affect that one. Holders need not lose their locks: a lock is
// lost if it could not be renewed until its deadline, 25 s after the last renewal with the default
// TTL. Any goroutine may call the methods.
type Faults struct {
	tb     testing.TB
	healed func() // called, without mu, when the backend can be reached again

	mu    sync.Mutex
	state state
	slow  time.Duration
	timer *time.Timer // ends FailFor
	epoch int         // counts changes of state
}

const backendName = "holdfasttest"

type state int

const (
	answering state = iota
	failing
	hanging
)

// Fail makes every call fail at once with [ErrUnavailable], until Heal. Nothing wakes waiters
// meanwhile.
func (f *Faults) Fail() { f.set(failing) }

// FailFor is Fail followed by Heal after d. It does not wait.
func (f *Faults) FailFor(d time.Duration) {
	f.tb.Helper()
	if d <= 0 {
		f.tb.Errorf("holdfasttest: FailFor(%v): want a time greater than 0", d)
		return
	}
	epoch := f.set(failing)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch == epoch {
		f.timer = time.AfterFunc(d, func() { f.heal(epoch) })
	}
}

// Hang makes every call hang until its time limit, until Heal: nothing answers, as when the
// network is cut. Calls that hang already are not answered by Heal either.
func (f *Faults) Hang() { f.set(hanging) }

// Slow makes every call take d longer; Slow(0) ends that. Calls that take longer than the time
// limit of a request (3 s with the default TTL) fail.
func (f *Faults) Slow(d time.Duration) {
	f.tb.Helper()
	if d < 0 {
		f.tb.Errorf("holdfasttest: Slow(%v): want a time of 0 or more", d)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = d
}

// Heal ends Fail, FailFor, Hang and Slow.
func (f *Faults) Heal() {
	f.mu.Lock()
	f.slow = 0
	f.mu.Unlock()
	f.heal(f.set(answering))
}

// set changes the state and ends a FailFor.
func (f *Faults) set(s state) (epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.state = s
	f.epoch++
	return f.epoch
}

// heal makes the backend answer again, unless the state has changed since epoch.
func (f *Faults) heal(epoch int) {
	f.mu.Lock()
	current := f.epoch == epoch
	if current {
		f.state = answering
	}
	f.mu.Unlock()
	if current {
		f.healed()
	}
}

// answers reports whether the backend can be reached.
func (f *Faults) answers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == answering
}

// add adds what happens now to a call for a lock.
func (f *Faults) add(to faulty.Fault, op, name string) faulty.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	to.Delay += f.slow
	switch f.state {
	case failing:
		to.Refuse = &driver.OpError{Op: op, Backend: backendName, Name: name, Err: ErrUnavailable}
	case hanging:
		to.Hang = true
	}
	return to
}
