package httpstore

import (
	"testing"
	"time"
)

// Answers of two servers whose clocks differ are noticed, however a process meets them, and answers of one clock are not taken for
// those of two.
func TestClocks(t *testing.T) {
	for what, test := range map[string]struct {
		second time.Duration // by how much the second server is ahead
		want   bool
	}{
		"one": {0, false}, "within a second": {900 * time.Millisecond, false}, "ahead": {4 * time.Second, true},
		"behind": {-4 * time.Second, true},
	} {
		now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
		began := now
		c := NewClocks(func() time.Duration { return now.Sub(began) })
		for i := range 100 {
			sent := c.Elapsed()
			now = now.Add(time.Duration(100+37*i%400) * time.Millisecond)
			server := now.Add(-50 * time.Millisecond)
			if i%2 == 1 {
				server = server.Add(test.second)
			}
			c.Note(server.Truncate(time.Second), sent)
		}
		c.Note(time.Time{}, 0)
		if got := c.Disagree(); got != test.want {
			t.Errorf("%s: disagree = %v", what, got)
		}
		now = now.Add(Distrust + time.Second)
		if c.Disagree() {
			t.Errorf("%s: they still disagree after %v", what, Distrust)
		}
	}
}

// While a machine is suspended its elapsed clock may stand still, but the time of day does not. Answers from before that, and those that
// were asked for before, are not compared with the later ones.
func TestSuspend(t *testing.T) {
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for _, jump := range []time.Duration{time.Hour, -time.Hour} { // or somebody has set the time of day
		var elapsed, offset time.Duration
		c := NewClocks(func() time.Duration { return elapsed })
		c.wall = func() time.Time { return start.Add(elapsed + offset) }
		note := func(date, sent, received time.Duration) {
			elapsed = received
			c.Note(start.Add(date), sent)
		}
		note(time.Minute, time.Minute, time.Minute)
		offset += jump
		note(62*time.Second, 61*time.Second, 65*time.Second) // three requests that were under way
		note(64*time.Second+jump, 62*time.Second, 66*time.Second)
		note(63*time.Second, 63*time.Second, 67*time.Second)
		note(70*time.Second+jump, 70*time.Second, 70*time.Second)
		note(64*time.Second, 64*time.Second, 70500*time.Millisecond) // a late one
		note(71*time.Second+jump, 71*time.Second, 71*time.Second)
		if c.Disagree() {
			t.Errorf("after %v the clocks disagree", jump)
		}
		note(90*time.Second+jump, 72*time.Second, 72*time.Second)
		if !c.Disagree() {
			t.Errorf("after %v two servers whose clocks differ are not noticed", jump)
		}
	}
}

// Of two reads that overlap, the one that ends later may have the older version. That says nothing of a clock. The time that a read has
// taken does not count against the stamp of a write that was made meanwhile.
func TestOverlappingReads(t *testing.T) {
	elapsed, start := time.Duration(0), time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	c := NewClocks(func() time.Duration { return elapsed })
	read := func(version string, written, asked, answered time.Duration) {
		elapsed = answered
		c.NoteStamps("n", version, []time.Time{start.Add(written)}, start.Add(answered), asked)
	}
	read("2", 59*time.Second, time.Minute, 61*time.Second)
	read("1", 0, 60500*time.Millisecond, 62*time.Second)
	read("1", 0, 61*time.Second, 62*time.Second) // by a clock that stands still
	read("2", 59*time.Second, 63*time.Second, 63*time.Second)
	read("2", 59*time.Second, 64*time.Second, 80*time.Second) // the answer took 16 s
	read("3", 65*time.Second, 81*time.Second, 81*time.Second)
	if c.Disagree() {
		t.Error("the clocks disagree")
	}
	read("4", 66*time.Second, 82*time.Second, 82*time.Second)
	if !c.Disagree() {
		t.Error("a stamp that is 15 s older than the read before was not noticed")
	}
}

// A write that leaves no stamp says nothing of a clock: all stamps are of writes before, also if the latest of them is gone.
func TestWritesWithoutStamp(t *testing.T) {
	elapsed, start := time.Duration(0), time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	c := NewClocks(func() time.Duration { return elapsed })
	read := func(version string, after time.Duration, stamps ...time.Duration) {
		elapsed += after
		times := make([]time.Time, len(stamps))
		for i, s := range stamps {
			times[i] = start.Add(s)
		}
		c.NoteStamps("n", version, times, start.Add(elapsed), elapsed)
	}
	read("1", time.Minute, 30*time.Second, 10*time.Second, 20*time.Second)
	read("2", time.Minute, 30*time.Second, 10*time.Second, 20*time.Second)
	read("3", time.Minute, 10*time.Second, 20*time.Second)
	read("4", time.Minute)
	if c.Disagree() {
		t.Error("the clocks disagree")
	}
	read("5", time.Minute, 10*time.Second)
	if !c.Disagree() {
		t.Error("a new stamp that is older than the read before was not noticed")
	}
}

// The memory of versions is bounded.
func TestSeenIsBounded(t *testing.T) {
	c := NewClocks(func() time.Duration { return 0 })
	for i := range 3 * maxSeen {
		c.NoteStamps(string(rune(i)), "1", nil, time.Unix(1, 0), 0)
	}
	if len(c.seen) > maxSeen {
		t.Errorf("%d names", len(c.seen))
	}
}
