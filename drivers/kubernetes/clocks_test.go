package kubernetes

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A stamp that is later than the reading server's time says that the clocks of the servers disagree.
func TestClocksOfServersDisagree(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	server.SetStamps(func() time.Time { return clock.Now().Add(20 * time.Second) })
	acquire(t, l, "op", "a", 10*time.Second)
	v, err := l.store.Get(t.Context(), "op")
	if err != nil || !v.Unsure {
		t.Errorf("a stamp of the future is not noticed: %v", err)
	}
	clock.Advance(30 * time.Second)
	if v, err = l.store.Get(t.Context(), "op"); err != nil || v.Unsure {
		t.Errorf("a stamp of the past counts as one of the future: %v", err)
	}
}

// Answers of two servers whose clocks differ are noticed, however a process meets them, and answers of one clock are not taken for
// those of two.
func TestClocks(t *testing.T) {
	for what, c := range map[string]struct {
		second time.Duration // by how much the second server is ahead
		want   bool
	}{
		"one": {0, false}, "within a second": {900 * time.Millisecond, false}, "ahead": {4 * time.Second, true},
		"behind": {-4 * time.Second, true},
	} {
		now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
		began := now
		clocks := clocks{elapsed: func() time.Duration { return now.Sub(began) }}
		for i := range 100 {
			sent := clocks.elapsed()
			now = now.Add(time.Duration(100+37*i%400) * time.Millisecond)
			server := now.Add(-50 * time.Millisecond)
			if i%2 == 1 {
				server = server.Add(c.second)
			}
			clocks.note(server.Truncate(time.Second), sent)
		}
		clocks.note(time.Time{}, 0)
		if got := clocks.disagree(); got != c.want {
			t.Errorf("%s: disagree = %v", what, got)
		}
		now = now.Add(distrust + time.Second)
		if clocks.disagree() {
			t.Errorf("%s: they still disagree after %v", what, distrust)
		}
	}
}

// The stamps of a server that is behind are noticed by a process that uses another one only, also if a Lease was made meanwhile.
// By them a lease would seem to have ended.
func TestServerBehind(t *testing.T) {
	t.Parallel()
	for behind, want := range map[time.Duration]bool{0: false, 4 * time.Second: false, 20 * time.Second: true} {
		l, server, clock := fixed(t)
		waiter := open(t, server.URL(t), func(c *settings) { c.elapsed = l.store.clocks.elapsed })
		first, err := waiter.store.Get(t.Context(), "op")
		if err != nil || first.Unsure {
			t.Fatal(first.Unsure, err)
		}
		server.SetClock(func() time.Time { return clock.Now().Add(-behind) })
		acquire(t, l, "op", "a", 10*time.Second)
		server.SetClock(clock.Now)
		clock.Advance(time.Second)
		if v, err := waiter.store.Get(t.Context(), "op"); err != nil || v.Unsure != want {
			t.Errorf("%v behind: unsure %v, %v", behind, v.Unsure, err)
		}
		if _, err := try(t, waiter, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v behind: a second holder: %v", behind, err)
		}
		clock.Advance(distrust)
		// What is old was not written after the last read.
		for range 2 {
			if v, err := waiter.store.Get(t.Context(), "op"); err != nil || v.Unsure {
				t.Errorf("%v behind: after %v it is still unsure, %v", behind, distrust, err)
			}
		}
	}
}

// What two answers of servers whose clocks differ have shown counts for all Leases.
func TestAnswersOfTwoServers(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	acquire(t, l, "op", "a", 10*time.Second)
	server.SetClock(func() time.Time { return clock.Now().Add(15 * time.Second) })
	if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("by the clock of a server that is ahead: %v", err)
	}
}

// Of two reads that overlap, the one that ends later may have the older version. That says nothing of a clock. The time that a read has
// taken does not count against the stamp of a write that was made meanwhile.
func TestOverlappingReads(t *testing.T) {
	elapsed, start := time.Duration(0), time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	c := clocks{elapsed: func() time.Duration { return elapsed }}
	read := func(version string, written, asked, answered time.Duration) {
		elapsed = answered
		c.noteStamp("n", version, start.Add(written), start.Add(answered), asked)
	}
	read("2", 59*time.Second, time.Minute, 61*time.Second)
	read("1", 0, 60500*time.Millisecond, 62*time.Second)
	read("1", 0, 61*time.Second, 62*time.Second) // by a clock that stands still
	read("2", 59*time.Second, 63*time.Second, 63*time.Second)
	read("2", 59*time.Second, 64*time.Second, 80*time.Second) // the answer took 16 s
	read("3", 65*time.Second, 81*time.Second, 81*time.Second)
	if c.disagree() {
		t.Error("the clocks disagree")
	}
	read("4", 65*time.Second, 82*time.Second, 82*time.Second)
	if !c.disagree() {
		t.Error("a stamp that is 15 s older than the read before was not noticed")
	}
}

// The memory of versions is bounded.
func TestSeenIsBounded(t *testing.T) {
	c := clocks{elapsed: func() time.Duration { return 0 }}
	for i := range 3 * maxSeen {
		c.noteStamp(string(rune(i)), "1", time.Time{}, time.Unix(1, 0), 0)
	}
	if len(c.seen) > maxSeen {
		t.Errorf("%d names", len(c.seen))
	}
}
