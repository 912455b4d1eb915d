package file

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// wantPruned makes a file look as old as that, and expects how many records a prune removes.
func wantPruned(t *testing.T, l *Locker, what any, path string, age time.Duration, want int) {
	t.Helper()
	backdate(t, path, age)
	if removed, err := l.prune(t.Context()); err != nil || removed != want {
		t.Errorf("%v: %d removed, error %v; want %d", what, removed, err, want)
	}
}

// A record that was used on this boot stays until the retention has also passed on the clock that
// judges expiry. After a step of the wall clock a file only looks old.
func TestPruneAfterAWallClockStep(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newFakeClock()
	d.advance(30 * 24 * time.Hour) // the machine has been up for longer than the retention
	l := newTestLocker(t, dir, d.clock())
	path := filepath.Join(dir, "n.json")
	use := map[string]func(){
		"released": func() {
			mustRelease(t, l, mustAcquire(t, l, request("first")))
		},
		"expired": func() { // a long lease that ended just now
			req := request("expired")
			req.TTL = 2 * defaultRetention
			mustAcquire(t, l, req)
			d.advance(req.TTL)
		},
		"renewed after its expiry": func() {
			lease := mustAcquire(t, l, request("second"))
			d.advance(time.Hour)
			mustRenew(t, l, lease)
			d.advance(time.Minute)
		},
	}
	for what, use := range use {
		use()
		for _, step := range []struct {
			forward time.Duration
			removed int
		}{{0, 0}, {defaultRetention - 2*time.Minute, 0}, {2 * time.Minute, 1}} {
			d.advance(step.forward)
			wantPruned(t, l, fmt.Sprint(what, step), path, 2*defaultRetention, step.removed) // as after a step of the wall clock
		}
	}
}

// For a record of an earlier boot, or one without the time of its last use, the file's age decides.
func TestPruneOfOldRecords(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*record){
		"earlier boot": func(r *record) { r.Boot, r.Used = "boot 0", 1000*time.Hour },
		"old record":   func(r *record) { r.Used, r.Retention = 0, 0 },
	} {
		dir, d := t.TempDir(), newFakeClock()
		d.advance(30 * 24 * time.Hour)
		l := newTestLocker(t, dir, d.clock())
		mustRelease(t, l, mustAcquire(t, l, request("first")))
		path := filepath.Join(dir, "n.json")
		rec := must(l.readRecord(t.Context(), path))
		change(&rec)
		write(t, path, string(must(rec.encode())))
		for age, want := range map[time.Duration]bool{defaultRetention - time.Minute: false, defaultRetention + time.Minute: true} {
			backdate(t, path, age)
			if _, ok := l.isUnused(t.Context(), "n"); ok != want {
				t.Errorf("%s, written %v ago: unused %t, want %t", what, age, ok, want)
			}
		}
	}
}

// The longer retention counts: that of the process that was last granted the lock, which the record
// has, or that of the process that prunes.
func TestPruneHonoursTheRecordsRetention(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newFakeClock()
	retentions := map[string]time.Duration{"long": 30 * 24 * time.Hour, "default": defaultRetention, "short": time.Hour}
	lockers := map[string]*Locker{}
	for name, retention := range retentions {
		lockers[name] = newTestLocker(t, dir, d.clock(), WithRetention(retention))
	}
	for _, c := range []struct{ grants, prunes, counts string }{
		{"long", "short", "long"}, {"short", "long", "long"}, {"short", "default", "default"}, {"default", "short", "default"},
	} {
		// The record keeps the retention of the grant, whoever releases the lock.
		lease := mustAcquire(t, lockers[c.grants], request(fmt.Sprint(c)))
		mustRelease(t, lockers["short"], lease)
		path := filepath.Join(dir, "n.json")
		for _, step := range []struct {
			age, forward time.Duration
			removed      int
		}{
			{1000 * time.Hour, retentions[c.counts] - time.Minute, 0},
			{retentions[c.counts] - time.Minute, time.Minute, 0},
			{retentions[c.counts] + time.Minute, 0, 1},
		} {
			d.advance(step.forward)
			wantPruned(t, lockers[c.prunes], c, path, step.age, step.removed)
		}
	}
}
