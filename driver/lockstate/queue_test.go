package lockstate_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// A request that is refused because of a waiter whose time is over removes that waiter. It says how
// long the reservation lasts for its new position, or its caller would wait for the next poll.
func TestRefusalAfterAnotherWaiterWasRemoved(t *testing.T) {
	var k lockstate.Lock
	moment := func(at time.Duration) lockstate.Moment { return lockstate.Moment{Elapsed: at, Wall: start.Add(at)} }
	ask := func(waiter string, queueFor, at time.Duration) (bool, *driver.HeldError) {
		req := request(waiter, time.Minute)
		req.QueueFor = queueFor
		if k.AcquireInTurn(req, waiter, "", waiter, moment(at)) {
			return true, nil
		}
		return false, k.Refusal("job", waiter, moment(at))
	}
	if granted, _ := ask("holder", time.Minute, 0); !granted {
		t.Fatal("a free lock was refused")
	}
	ask("dead", 10*time.Second, 0)
	ask("alive", time.Minute, 0)
	released := 11 * time.Second // no waiter's request has removed the dead one yet
	k.Release("holder", moment(released))
	k.Expires = released // as a store with a queue sets it
	now := released + driver.TurnLength/2
	granted, held := ask("alive", time.Minute, now)
	if granted || !held.Reserved || !held.Record.RemainingKnown || held.Record.Remaining != 0 || held.Record.Position != 1 {
		t.Errorf("granted %v, refused with %+v", granted, held)
	}
	if granted, held := ask("newcomer", 0, now); granted || !held.Reserved || held.Record.Remaining != driver.TurnLength/2 {
		t.Errorf("granted %v to a newcomer, refused with %+v", granted, held)
	}
	if granted, _ := ask("alive", time.Minute, now); !granted {
		t.Error("refused again")
	}
}
