package lockstate_test

import (
	"fmt"
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
	ask := func(waiter string, queueFor, at time.Duration) (refused *driver.HeldError) {
		req := request(waiter, time.Minute)
		req.QueueFor = queueFor
		if k.AcquireInTurn(req, waiter, "", waiter, moment(at)) {
			return nil
		}
		return k.Refusal("job", waiter, moment(at))
	}
	if refused := ask("holder", time.Minute, 0); refused != nil {
		t.Fatal(refused)
	}
	if ask("dead", 10*time.Second, 0) == nil || ask("alive", time.Minute, 0) == nil {
		t.Fatal("a held lock was granted")
	}
	released := 11 * time.Second // no waiter's request has removed the dead one yet
	k.Release("holder", moment(released))
	k.Expires = released // as a store with a queue sets it
	now := released + driver.TurnLength/2
	held := ask("alive", time.Minute, now)
	if held == nil || !held.Reserved || !held.Record.RemainingKnown || held.Record.Remaining != 0 || held.Record.Position != 1 {
		t.Errorf("refused with %+v", held)
	}
	if held := ask("newcomer", 0, now); held == nil || !held.Reserved || held.Record.Remaining != driver.TurnLength/2 {
		t.Errorf("a newcomer is refused with %+v", held)
	}
	if held := ask("alive", time.Minute, now); held != nil {
		t.Errorf("refused again: %v", held)
	}
}

// A queue has MaxWaiters positions. Another waiter has none, and enters when one has left.
func TestFullQueue(t *testing.T) {
	var k lockstate.Lock
	now := lockstate.Moment{Wall: start}
	k.AcquireInTurn(request("holder", time.Hour), "holder", "", "holder", now)
	enter := func(waiter string) int {
		req := request(waiter, time.Minute)
		req.QueueFor = time.Minute
		k.AcquireInTurn(req, waiter, "", waiter, now)
		return k.Refusal("job", waiter, now).Record.Position
	}
	for i := range driver.MaxWaiters {
		if at := enter(fmt.Sprint(i)); at != i+1 {
			t.Fatalf("waiter %d has position %d", i, at)
		}
	}
	if at := enter("late"); at != 0 {
		t.Errorf("a waiter of a full queue has position %d", at)
	}
	k.Leave("0")
	if at := enter("late"); at != driver.MaxWaiters {
		t.Errorf("a waiter behind %d others has position %d", driver.MaxWaiters-1, at)
	}
}
