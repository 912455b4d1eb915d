package lockstate_test

import (
	"fmt"
	"slices"
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
		if k.AcquireInTurn(req, waiter, waiter, moment(at)) {
			return nil
		}
		return k.Refusal("job", waiter, moment(at))
	}
	if refused := ask("holder", time.Minute, 0); refused != nil {
		t.Fatal(refused)
	}
	if ask("dead", 10*time.Second, 0) == nil || ask("alive", 30*time.Second, 0) == nil {
		t.Fatal("a held lock was granted")
	}
	released := 11 * time.Second // no waiter's request has removed the dead one yet
	k.Release("holder", moment(released))
	k.Expires = released // as a store with a queue sets it
	now := released + driver.TurnLength/2
	held := ask("alive", 30*time.Second, now)
	if held == nil || !held.Reserved || !held.Record.RemainingKnown || held.Record.Remaining != 0 || held.Record.Position != 1 {
		t.Errorf("refused with %+v", held)
	}
	if held := ask("newcomer", 0, now); held == nil || !held.Reserved || held.Record.Remaining != driver.TurnLength/2 {
		t.Errorf("a newcomer is refused with %+v", held)
	}
	if held := ask("alive", 30*time.Second, now); held != nil {
		t.Errorf("refused again: %v", held)
	}
}

// A queue has MaxWaiters positions. Another waiter has none, and enters when one has left.
func TestFullQueue(t *testing.T) {
	var k lockstate.Lock
	now := lockstate.Moment{Wall: start}
	k.AcquireInTurn(request("holder", time.Hour), "holder", "holder", now)
	enter := func(waiter string) int {
		req := request(waiter, time.Minute)
		req.QueueFor = time.Minute
		k.AcquireInTurn(req, waiter, waiter, now)
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

// To a request that waited for another's release the lock becomes free in the future. It is refused like any other newcomer.
// A clock that stands long before that moment reserves nothing.
func TestNewcomerThatWaitedForTheReleasePassesNobody(t *testing.T) {
	for early, granted := range map[time.Duration]bool{driver.MaxTurn / 2: false, driver.MaxTurn: false, driver.MaxTurn + 1: true} {
		k := lockstate.Lock{Token: 1, Expires: time.Minute, Queue: []lockstate.Waiter{{ID: "first", Until: time.Hour}}}
		now := lockstate.Moment{Elapsed: time.Minute - early, Wall: start}
		if got := k.AcquireInTurn(request("newcomer", time.Minute), "newcomer", "newcomer", now); got != granted {
			t.Errorf("%v before it became free: granted %v, want %v", early, got, granted)
		}
	}
}

// A grant removes the caller and those before it that the release woke: two, or one of a long queue. Those behind them were not woken, and
// stay. If the lock was not free, nobody was woken.
func TestGrantKeepsWaitersThatNobodyWoke(t *testing.T) {
	const released = time.Second
	for _, c := range []struct {
		length, who int // a newcomer is behind all
		replaced    bool
		stay        []int // of those before it
	}{
		{1, 1, false, nil}, {2, 2, false, nil}, {3, 3, false, nil}, {6, 1, false, nil}, {6, 2, false, nil}, {6, 3, false, nil},
		{6, 4, false, []int{3}}, {6, 7, false, []int{3, 4, 5, 6}}, {6, 4, true, []int{1, 2, 3}}, {6, 7, true, []int{1, 2, 3, 4, 5, 6}},
		{driver.LongQueue, 4, false, []int{3}}, {driver.LongQueue + 1, 4, false, []int{2, 3}},
	} {
		var k lockstate.Lock
		moment := func(at time.Duration) lockstate.Moment { return lockstate.Moment{Elapsed: at, Wall: start.Add(at)} }
		k.Acquire(request("holder", time.Minute), "holder", moment(0))
		var want, got []string
		for i := range c.length {
			id := fmt.Sprint(i + 1)
			k.Queue = append(k.Queue, lockstate.Waiter{ID: id, Until: time.Hour})
			if i+1 > c.who || slices.Contains(c.stay, i+1) {
				want = append(want, id)
			}
		}
		who := fmt.Sprint(c.who)
		req := request(who, time.Minute)
		if c.replaced {
			req.Replace = k.Record("job", moment(0)).Revision
		} else {
			k.Release("holder", moment(released))
			k.Expires = released
		}
		if !k.AcquireInTurn(req, who, who, moment(released+driver.MaxTurn)) {
			t.Errorf("%+v: refused", c)
		}
		for _, w := range k.Queue {
			got = append(got, w.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: the queue is %v, want %v", c, got, want)
		}
	}
}

// A refused request is told how much is left of the reservation for its own position.
func TestReservationOfEachPosition(t *testing.T) {
	k := lockstate.Lock{Token: 1, Queue: []lockstate.Waiter{{ID: "1", Until: time.Hour}, {ID: "2", Until: time.Hour},
		{ID: "3", Until: time.Hour}}}
	now := lockstate.Moment{Elapsed: driver.TurnLength / 4, Wall: start} // it became free at 0
	for waiter, want := range map[string]time.Duration{"1": 0, "2": driver.Turn(2), "3": driver.Turn(3), "newcomer": driver.Turn(4)} {
		left := max(want-now.Elapsed, 0)
		if held := k.Refusal("job", waiter, now); !held.Reserved || held.Record.Remaining != left {
			t.Errorf("%s is refused with %+v, want %v", waiter, held, left)
		}
		asked := k
		asked.Queue = slices.Clone(k.Queue)
		if got := asked.AcquireInTurn(request(waiter, time.Minute), waiter, waiter, now); got != (left == 0) {
			t.Errorf("%s: granted is %v, %v before its turn", waiter, got, left)
		}
	}
}

// A release wakes the first two waiters whose time is not over and that do not poll, and only the first of a long queue.
func TestWoken(t *testing.T) {
	now := lockstate.Moment{Elapsed: time.Minute}
	const dead, live = time.Minute, 2 * time.Minute
	many := func(n int) (all []lockstate.Waiter) {
		for i := range n {
			all = append(all, lockstate.Waiter{ID: fmt.Sprint(i + 1), Until: live})
		}
		return all
	}
	for name, c := range map[string]struct {
		queue []lockstate.Waiter
		want  []string
	}{
		"nobody":        {nil, nil},
		"one":           {many(1), []string{"1"}},
		"a short queue": {many(driver.LongQueue), []string{"1", "2"}},
		"a long queue":  {many(driver.LongQueue + 1), []string{"1"}},
		"dead ones first": {append([]lockstate.Waiter{{ID: "d", Until: dead}, {ID: "e", Until: dead}}, many(driver.LongQueue)...),
			[]string{"1", "2"}},
		"one that polls": {append([]lockstate.Waiter{{ID: "p", Until: live, Polls: true}}, many(3)...), []string{"1", "2"}},
		"all are dead":   {[]lockstate.Waiter{{ID: "d", Until: dead}}, nil},
	} {
		k := lockstate.Lock{Queue: c.queue}
		before := slices.Clone(c.queue)
		var got []string
		for _, w := range k.Woken(now) {
			got = append(got, w.ID)
		}
		if !slices.Equal(got, c.want) || !slices.Equal(k.Queue, before) {
			t.Errorf("%s: %v are woken, want %v; the queue is %v", name, got, c.want, k.Queue)
		}
	}
}

// A waiter that polls enters only a queue that has others, and passes by a queue of its like. A grant removes the
// waiters that poll and had a turn.
func TestWaitersThatPoll(t *testing.T) {
	now := lockstate.Moment{Elapsed: time.Minute, Wall: start}
	held := func(queue ...lockstate.Waiter) lockstate.Lock {
		return lockstate.Lock{Holder: "holder", Token: 1, TTL: time.Hour, Expires: time.Hour, Queue: queue}
	}
	ask := func(k *lockstate.Lock, waiter string) bool {
		req := request(waiter, time.Minute)
		req.QueueFor = time.Minute
		return k.AcquirePolling(req, waiter, waiter, now)
	}
	woken, marked := lockstate.Waiter{ID: "1", Until: time.Hour}, lockstate.Waiter{ID: "2", Until: time.Hour, Polls: true}
	for _, k := range []lockstate.Lock{held(), held(marked)} {
		n := len(k.Queue)
		if ask(&k, "3") || len(k.Queue) != n {
			t.Errorf("a queue of %d is %v after a waiter that polls", n, k.Queue)
		}
	}
	k := held(woken, marked)
	if ask(&k, "3") || k.Position("3") != 3 || !k.Queue[2].Polls {
		t.Errorf("the queue is %v", k.Queue)
	}
	k.End(driver.EndReleased, start)
	if k.Expires = now.Elapsed; ask(&k, "3") {
		t.Error("a lock that is reserved for others is granted")
	}
	now.Elapsed += driver.Turn(3)
	if !ask(&k, "3") || len(k.Queue) != 0 {
		t.Errorf("refused in its turn, or the queue is %v", k.Queue)
	}
	k = held(woken)
	k.End(driver.EndReleased, start)
	k.Expires = now.Elapsed
	if req := request("1", time.Minute); !k.AcquireInTurn(req, "1", "1", now) || ask(&k, "3") || k.Position("3") != 1 {
		t.Errorf("after the last waiter that a release wakes the queue is %v", k.Queue)
	}
	if ask(&k, "4") || k.Position("4") != 0 {
		t.Errorf("a second waiter that polls enters: %v", k.Queue)
	}
	k = held(marked)
	k.End(driver.EndReleased, start)
	if k.Expires = now.Elapsed; !ask(&k, "3") {
		t.Error("a lock for which only polling waiters wait is not free")
	}
}

// While a lock whose lease has expired is reserved for waiters, its last holder may still repeat its request
// or be replaced: nobody has taken the lock.
func TestReservationSparesTheLastHolder(t *testing.T) {
	for name, c := range map[string]struct {
		id       string
		replace  bool
		granted  bool
		newToken bool
	}{
		"another":       {"other", false, false, false},
		"the holder":    {"holder", false, true, false},
		"a replacement": {"other", true, true, true},
	} {
		var k lockstate.Lock
		k.Acquire(request("holder", time.Minute), "holder", lockstate.Moment{Wall: start})
		k.Queue = []lockstate.Waiter{{ID: "1", Until: time.Hour}}
		req := request(c.id, time.Minute)
		if c.replace {
			req.Replace = k.Record("job", lockstate.Moment{}).Revision
		}
		token, now := k.Token, lockstate.Moment{Elapsed: time.Minute + driver.TurnLength/2, Wall: start}
		granted := k.AcquireInTurn(req, c.id, "caller", now)
		if granted != c.granted || (k.Token != token) != c.newToken {
			t.Errorf("%s: granted %v with token %d after %d", name, granted, k.Token, token)
		}
		if c.newToken && k.History[0].End != driver.EndExpired {
			t.Errorf("%s: the lease before ended as %v", name, k.History[0].End)
		}
	}
}

// A position is written again when a third of its time is over, and with it go those whose time is over.
func TestPositionIsRefreshedAfterAThird(t *testing.T) {
	k := lockstate.Lock{Holder: "holder", Token: 1, Expires: time.Hour, Queue: []lockstate.Waiter{{ID: "dead", Until: 1},
		{ID: "1", Until: 30 * time.Second}}}
	req := request("1", time.Minute)
	req.QueueFor = 30 * time.Second
	for _, c := range []struct {
		at, until time.Duration
		position  int
	}{{10 * time.Second, 30 * time.Second, 2}, {10*time.Second + 1, 40*time.Second + 1, 1}} {
		k.AcquireInTurn(req, "1", "1", lockstate.Moment{Elapsed: c.at, Wall: start})
		if p := k.Position("1"); p != c.position || k.Queue[p-1].Until != c.until {
			t.Errorf("at %v: %v", c.at, k.Queue)
		}
	}
}
