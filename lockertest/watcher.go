package lockertest

import (
	"time"

	"github.com/holdfast-go/holdfast"
)

func canWatch(s *suite) bool { return s.abilities.Watcher != nil }

var watcherClauses = []clause{
	{
		name: "watcher/wakes", needs: canWatch,
		says: "The channel gets a value when the watch has come into effect and whenever the name may have become free by a release.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := c.b.Abilities().Watcher.Watch(lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			for range 5 {
				c.drain(wake)
				c.release(c.a, lease)
				c.awake("a release through another Locker", wake)
				lease = c.acquire(c.a, c.request(lease.Name))
			}
		},
	},
	{
		name: "watcher/own Locker", needs: canWatch,
		says: "The channel gets a value whenever the name may have become free by a release.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := c.a.Abilities().Watcher.Watch(lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			c.drain(wake)
			c.release(c.a, lease)
			c.awake("a release through the same Locker", wake)
		},
	},
	{
		name: "watcher/removal", needs: func(s *suite) bool { return canWatch(s) && canForget(s) },
		says: "The channel gets a value whenever the name may have become free by a removal.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			wake, stop := c.b.Abilities().Watcher.Watch(lease.Name)
			defer stop()
			c.awake("the watch has come into effect", wake)
			c.drain(wake)
			c.forget(lease.Name)
			c.awake("the record's removal", wake)
		},
	},
	{
		name: "watcher/many", needs: canWatch,
		says: "Watch begins to watch a name; each watch of it is woken, also one of several on the same name.",
		run: func(c *check) {
			const names, each = 5, 10
			type watch struct {
				name string
				wake <-chan struct{}
			}
			var leases []holdfast.Lease
			var watches []watch
			for range names {
				lease := c.acquire(c.a, c.request(c.name()))
				leases = append(leases, lease)
				for i := range each {
					l := []holdfast.Locker{c.a, c.b}[i%2]
					wake, stop := l.Abilities().Watcher.Watch(lease.Name)
					defer stop()
					watches = append(watches, watch{lease.Name, wake})
				}
			}
			for _, w := range watches {
				c.awake("the watch has come into effect", w.wake)
			}
			for _, w := range watches {
				c.drain(w.wake)
			}
			for _, lease := range leases {
				c.release(c.a, lease)
			}
			for _, w := range watches {
				c.awake("a release that many watch", w.wake)
			}
		},
	},
	{
		name: "watcher/coalesced", needs: canWatch,
		says: "Values are coalesced: nobody waits for a watcher that does not read.",
		run: func(c *check) {
			name := c.name()
			wake, stop := c.b.Abilities().Watcher.Watch(name)
			defer stop()
			for range 20 {
				c.release(c.a, c.acquire(c.a, c.request(name)))
			}
			c.awake("many releases", wake)
		},
	},
	{
		name: "watcher/stop", needs: canWatch,
		says: "The channel is never closed. stop ends the watch; it may be called more than once.",
		run: func(c *check) {
			l := c.fresh()
			lease := c.acquire(c.a, c.request(c.name()))
			stopped, stop := l.Abilities().Watcher.Watch(lease.Name)
			going, stopGoing := l.Abilities().Watcher.Watch(lease.Name)
			defer stopGoing()
			c.awake("the watch has come into effect", stopped)
			c.awake("the watch has come into effect", going)
			stop()
			stop()
			c.drain(going)
			c.release(c.a, lease)
			c.awake("a release, after another watch of the name was stopped", going)
			c.drain(stopped)
			if err := l.Close(); err != nil {
				c.errorf("Close with a watch open: %v", err)
			}
			c.drain(going)
			stop()
			stopGoing()
			never, stopNever := l.Abilities().Watcher.Watch(lease.Name)
			c.drain(never)
			stopNever()
			stopNever()
		},
	},
	{
		name: "watcher/no waiting", alone: true, needs: func(s *suite) bool { return canWatch(s) && canStall(s) },
		says: "Watch returns at once, without I/O; if watching turns out to be impossible, no value ever comes.",
		run: func(c *check) {
			name := c.name()
			watcher := c.fresh().Abilities().Watcher // opening may need the backend
			resume, err := c.cfg.Stall(c.ctx, name)
			if err != nil {
				c.fatalf("lockertest: Config.Stall: %v", err)
			}
			defer resume()
			start := time.Now()
			wake, stop := watcher.Watch(name)
			c.drain(wake)
			stop()
			if took := time.Since(start); took > time.Second {
				c.errorf("Watch and stop took %v while the backend did not answer", took)
			}
		},
	},
	{
		name: "watcher/odd names", needs: canWatch,
		says: "Every valid UTF-8 string is a name of its own, also to a Watcher.",
		run: func(c *check) {
			for _, odd := range []string{"$kid", "/", "..", "a.b", "%2F", "\x00", "\u00e9", "e\u0301", "*"} {
				lease := c.acquire(c.a, c.request(c.name()+odd))
				wake, stop := c.b.Abilities().Watcher.Watch(lease.Name)
				c.awake("the watch has come into effect", wake)
				c.drain(wake)
				c.release(c.a, lease)
				c.awake("a release", wake)
				stop()
			}
		},
	},
}

// awake waits for a value.
func (c *check) awake(why string, wake <-chan struct{}) {
	select {
	case _, open := <-wake:
		if !open {
			c.fatalf("the channel of Watch was closed")
		}
	case <-time.After(c.cfg.Slack):
		c.fatalf("nothing woke the watcher within %v although this happened: %s", c.cfg.Slack, why)
	}
}

// drain takes a value that is already there.
func (c *check) drain(wake <-chan struct{}) {
	select {
	case _, open := <-wake:
		if !open {
			c.fatalf("the channel of Watch was closed")
		}
	default:
	}
}
