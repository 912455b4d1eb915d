package engine

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// checkedWaker takes a wake-up of a kind that the contract does not have for the end of waking, and logs it. As any other
// kind it would be a promise that the driver has not made: a waiter that relies on wake-ups polls rarely.
type checkedWaker struct {
	driver.Waker
	client *Client
}

// Wake implements [driver.Waker].
func (w checkedWaker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return w.Waker.Wake(name, waiter, func(up driver.Wakeup) {
		if err := up.Validate(); err != nil {
			w.client.log(event.Event{Type: event.Error, Name: name, Op: opWake, Err: err, Time: time.Now()})
			up = driver.Wakeup{Kind: driver.WakingEnded}
		}
		wake(up)
	})
}
