package lockertest

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var watcherClauses = []clause{
	{
		name: "watcher/wakes", needs: canWatch,
		says: "wake is called when the watch has come into effect and whenever the name may have become free by a release.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := watch(c.b, lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			for range 5 {
				drain(wake)
				c.release(c.a, lease)
				c.awake("a release through another Locker", wake)
				lease = c.acquire(c.a, c.request(lease.Name))
			}
		},
	},
	{
		name: "watcher/reads", needs: canWatch | canInspectBatch,
		says: "Many waiters without a position read first, so a read that begins after a call must not return the record of before.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := watch(c.b, lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			const releases = 3
			old := 0
			for range releases {
				drain(wake)
				released := make(chan error, 1)
				go func() { released <- c.a.Release(c.ctx, lease) }()
				c.awake("a release through another Locker", wake)
				if r := c.inspectBatch(c.b, []string{lease.Name})[0]; r.State == driver.StateHeld {
					old++
				}
				if err := <-released; err != nil {
					c.fatalf("Release: %v", err)
				}
				lease = c.acquire(c.a, c.request(lease.Name))
			}
			if old == releases { // one call may have come without a reason
				c.errorf("after the wake-ups by %d releases InspectBatch still showed the lock as held each time", releases)
			}
		},
	},
	{
		name: "watcher/own Locker", needs: canWatch,
		says: "wake is called whenever the name may have become free by a release.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := watch(c.a, lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			drain(wake)
			c.release(c.a, lease)
			c.awake("a release through the same Locker", wake)
		},
	},
	{
		name: "watcher/removal", needs: canWatch | canForget,
		says: "wake is called whenever the name may have become free by a removal.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := watch(c.b, lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			drain(wake)
			c.forget(lease.Name)
			c.awake("the record's removal", wake)
		},
	},
	{
		name: "watcher/many", needs: canWatch,
		says: "wake is called for the name of the watch. Each watch is woken, also if there are several of the same name.",
		run: func(c *check) {
			const names, each = 5, 10
			var leases []driver.Lease
			var watches []<-chan struct{}
			for range names {
				lease := c.acquire(c.a, c.request(c.name()))
				leases = append(leases, lease)
				for i := range each {
					l := []driver.Locker{c.a, c.b}[i%2]
					wake, stop := watch(l, lease.Name)
					defer stop()
					watches = append(watches, wake)
				}
			}
			for _, wake := range watches {
				c.awake("the watch has come into effect", wake)
			}
			for _, wake := range watches {
				drain(wake)
			}
			for _, lease := range leases {
				c.release(c.a, lease)
			}
			for _, wake := range watches {
				c.awake("a release that many watch", wake)
			}
		},
	},
	{
		name: "watcher/stop", needs: canWatch,
		says: "stop ends the watch and may be called more than once.",
		run: func(c *check) {
			l := c.fresh()
			lease := c.acquire(c.a, c.request(c.name()))
			stopped, stop := watch(l, lease.Name)
			going, stopGoing := watch(l, lease.Name)
			defer stopGoing()
			c.awake("the watch has come into effect", stopped)
			c.awake("the watch has come into effect", going)
			stop()
			stop()
			const releases = 3
			woken := 0
			for range releases {
				drain(going)
				c.release(c.a, lease)
				c.awake("a release, after another watch of the name was stopped", going)
				if drain(stopped) {
					woken++
				}
				lease = c.acquire(c.a, c.request(lease.Name))
			}
			if woken == releases { // one call may have been under way
				c.errorf("a watch was woken by each of %d releases although it was stopped", releases)
			}
			if err := l.Close(c.ctx); err != nil {
				c.errorf("Close with a watch open: %v", err)
			}
			stop()
			stopGoing()
			_, stopNever := watch(l, lease.Name)
			stopNever()
			stopNever()
		},
	},
	{
		name: "watcher/stop within wake", needs: canWatch,
		says: "wake must not call the Locker, but it may call stop.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			effect, ended := make(chan struct{}, 1), make(chan struct{}, 1)
			var stopNow atomic.Pointer[func()] // set when wake should stop the watch
			stop := c.a.Capabilities().Waker.Wake(lease.Name, "", func(driver.Wakeup) {
				out := effect
				if stop := stopNow.Load(); stop != nil {
					(*stop)()
					out = ended
				}
				offer(out)
			})
			c.awake("the watch has come into effect", effect)
			stopNow.Store(&stop)
			released := make(chan error, 1)
			go func() { released <- c.a.Release(c.ctx, lease) }()
			c.awake("a release, at which the watch is stopped", ended)
			if err := <-released; err != nil {
				c.errorf("Release of a lock that is watched: %v", err)
			}
		},
	},
	{
		name: "watcher/waking since", needs: canBeWoken,
		says: "With WakingBegan each release is reported from now on, or since Ago. A waiter whose last request was sent after that has missed " +
			"nothing.",
		run: func(c *check) {
			for _, watched := range []bool{false, true} { // whether the Locker has a waiter already, of another lock
				for _, waiter := range c.waiterKinds() {
					c.wakingSince(watched, waiter)
				}
			}
		},
	},
	{
		name: "watcher/no waiting", alone: true, needs: canWatch | canStall,
		says: "Wake returns at once, without I/O.",
		run: func(c *check) {
			waker := c.fresh().Capabilities().Waker // opening may need the backend
			name := c.name()
			resume, err := c.cfg.Stall(c.ctx, name)
			if err != nil {
				c.fatalf("lockertest: Config.Stall: %v", err)
			}
			defer resume()
			start := time.Now()
			waker.Wake(name, "", func(driver.Wakeup) {})()
			if took := time.Since(start); took > c.soon {
				c.errorf("Wake and stop took %v while the backend did not answer", took)
			}
		},
	},
	{
		name: "watcher/odd names", needs: canWatch,
		says: "Names are compared byte for byte, whatever characters they have, also by a Waker.",
		run: func(c *check) {
			for _, odd := range []string{"$kid", "/", "..", "a.b", "%2F", "\x00", "\u00e9", "e\u0301", "*"} {
				lease := c.acquire(c.a, c.request(c.name()+odd))
				wake, stop := watch(c.b, lease.Name)
				c.awake("the watch has come into effect", wake)
				drain(wake)
				c.release(c.a, lease)
				c.awake("a release", wake)
				stop()
			}
		},
	},
}

// waiterKinds returns a waiter of each kind that the driver wakes: without a position, and with one.
func (c *check) waiterKinds() (kinds []driver.WaiterID) {
	if c.can(canWatch) {
		kinds = append(kinds, "")
	}
	if c.can(canQueue) {
		kinds = append(kinds, driver.NewWaiterID())
	}
	return kinds
}

// wakingSince releases a lock between the refusal of a waiter and its call of Wake. Whoever reports then that waking
// was in effect before the request must report the release as well: the waiter would wait for it.
func (c *check) wakingSince(watched bool, waiter driver.WaiterID) {
	l := c.fresh()
	if watched {
		woken, stop := wake(l, c.name(), waiter)
		defer stop()
		c.waking(woken)
	}
	lease := c.acquire(c.a, c.request(c.name()))
	req := c.request(lease.Name)
	if waiter != "" {
		req.Waiter, req.QueueFor = waiter, c.long()
	}
	sent := time.Now()
	c.held(l, req)
	c.release(c.a, lease)
	if watched {
		// So that the event of the release comes before the watch. One that comes later is reported to it: then less is shown.
		time.Sleep(100 * time.Millisecond)
	}
	began, released := make(chan bool, 1), make(chan struct{}, 1)
	defer l.Capabilities().Waker.Wake(lease.Name, waiter, func(up driver.Wakeup) {
		switch up.Kind {
		case driver.MayBeFree:
			offer(released)
		case driver.WakingBegan:
			select {
			case began <- time.Now().Add(-up.Ago).Before(sent):
			default:
			}
		}
	})()
	timeout := time.After(c.cfg.Slack)
	for {
		select {
		case <-released:
			return
		case before := <-began:
			if !before { // it asks again
				return
			}
			began = nil
		case <-timeout:
			if began == nil {
				c.fatalf("waking was reported to be in effect since before a request, and no release although there was one after it")
			}
			return // other clauses expect the call
		}
	}
}

// watch returns a channel that gets a value at each call of wake, unless it has one already.
func watch(l driver.Locker, name string) (woken <-chan struct{}, stop func()) {
	calls := make(chan struct{}, 1)
	return calls, l.Capabilities().Waker.Wake(name, "", func(up driver.Wakeup) {
		if up.Kind != driver.WakingEnded {
			offer(calls)
		}
	})
}

// offer sends a value unless the channel has one already.
func offer(calls chan<- struct{}) {
	select {
	case calls <- struct{}{}:
	default:
	}
}

// awake expects a call of wake.
func (c *check) awake(why string, woken <-chan struct{}) {
	select {
	case <-woken:
	case <-time.After(c.cfg.Slack):
		c.fatalf("nothing woke the watcher within %v although this happened: %s", c.cfg.Slack, why)
	}
}

// drain removes the value of a call of wake, and reports whether there was one.
func drain(woken <-chan struct{}) bool {
	select {
	case <-woken:
		return true
	default:
		return false
	}
}
