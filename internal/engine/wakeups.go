package engine

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// checkedWaker takes a wake-up of a kind that the contract does not have for the end of waking, and logs it. As any other
// kind it would be a promise that the driver has not made: a waiter that relies on wake-ups polls rarely.
type checkedWaker struct {
	driver.Waker
	events *observers
}

// Wake implements [driver.Waker].
func (w checkedWaker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return w.Waker.Wake(name, waiter, func(up driver.Wakeup) {
		if err := up.Validate(); err != nil {
			w.events.log(event.Event{Type: event.Error, Name: name, Op: opWake, Err: err, Time: time.Now()})
			up = driver.Wakeup{Kind: driver.WakingEnded}
		}
		wake(up)
	})
}

// wakeups counts the calls of the Waker, to detect a flood of them.
type wakeups struct {
	mu    sync.Mutex
	since time.Duration
	n     int
}

// A flood is more than floodSize calls within floodTime.
const (
	floodSize = 32
	floodTime = 100 * time.Millisecond
)

// note counts a call.
func (w *wakeups) note(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.since > floodTime {
		w.since, w.n = now, 0
	}
	w.n++
}

// flood reports whether there is a flood of calls now.
func (w *wakeups) flood(now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > floodSize && now-w.since <= 2*floodTime
}

// notify sends to a channel of capacity 1, unless a value is there already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
