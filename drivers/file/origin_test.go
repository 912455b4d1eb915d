package file

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// After a reboot every lock is free and has its data. Its token still rises, although the wall
// clock was set back.
func TestReboot(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	l := newTestLocker(t, dir, d.clock())
	before := mustAcquire(t, l, request("first"))

	l = newTestLocker(t, dir, rebooted(time.Minute, time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)).bootID("boot 2"))
	r, err := l.Inspect(t.Context(), "n")
	wantExpired(t, r)
	if err != nil || r.State != driver.StateFree || r.Token != before.Token || string(r.Data) != "data" {
		t.Errorf("after the reboot: %+v, error %v; want free, with token and data", r, err)
	}
	if _, err := l.Renew(t.Context(), before); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of a lease from before the reboot: %v, want ErrLost", err)
	}
	req := request("second")
	req.Data = nil
	after := mustAcquire(t, l, req)
	wantExpired(t, must(l.Inspect(t.Context(), "n")))
	if after.Token != before.Token+1 {
		t.Errorf("token %d after %d, want the next", after.Token, before.Token)
	}
	if data, _, err := l.ReadData(t.Context(), "n"); err != nil || string(data) != "data" {
		t.Errorf("data %q, error %v", data, err)
	}
	wantHeld(t, l, request("third"), "a lock taken after the reboot")
}

// wantExpired expects that a reboot has ended the tenure of the holder before, at a time that nobody knows.
func wantExpired(t *testing.T, r driver.Record) {
	t.Helper()
	if len(r.History) != 1 || r.History[0].End != driver.EndExpired || !r.History[0].Until.IsZero() || r.History[0].Owner != "me" {
		t.Errorf("the history is %+v", r.History)
	}
}

// rebooted is the clock of a kernel that started that long ago.
func rebooted(ago time.Duration, wall time.Time) *fakeClock {
	return &fakeClock{now: lockstate.Moment{Elapsed: ago, Wall: wall}}
}

// bootID is the clock as a process with that boot ID reads it.
func (d *fakeClock) bootID(boot string) clock {
	c := d.clock()
	c.boot = boot
	return c
}

// A machine may run longer than it did when the record was written before the reboot. Then the record may also be that of a container
// with a boot ID of its own, and its lease ends with its TTL.
func TestRebootLongAgo(t *testing.T) {
	for ago, held := range map[time.Duration]bool{
		time.Hour + 10*time.Second: true, time.Hour + 2*time.Minute: false, 1000 * time.Hour: false,
	} {
		dir := t.TempDir()
		before := mustAcquire(t, newTestLocker(t, dir, newFakeClock().clock()), request("first")) // 1 h after the boot, for a minute
		d := rebooted(ago, time.Now())
		l := newTestLocker(t, dir, d.bootID("boot 2"))
		if held {
			if _, err := l.TryAcquire(t.Context(), request("second")); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("booted %v ago: %v, want ErrHeld", ago, err)
			}
			d.advance(before.TTL)
		} else if ago > 100*time.Hour {
			wantExpired(t, must(l.Inspect(t.Context(), "n")))
		}
		if after := mustAcquire(t, l, request("second")); after.Token <= before.Token {
			t.Errorf("booted %v ago: token %d after %d", ago, after.Token, before.Token)
		}
	}
}

// Containers of systemd-nspawn and LXC have boot IDs of their own. If they have the machine ID of their host, they share its locks: the
// clock is the same. Other containers on one host see the same boot, and are different machines.
func TestContainerWithABootIDOfItsOwn(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	a, b := newTestLocker(t, dir, d.bootID("container 1")), newTestLocker(t, dir, d.bootID("container 2"))
	first := mustAcquire(t, a, request("first"))
	for range 5 {
		wantHeld(t, b, request("second"), "a lock that is renewed")
		d.advance(first.TTL - 1)
		mustRenew(t, a, first)
	}
	d.advance(first.TTL)
	second := mustAcquire(t, b, request("second"))
	if err := errOf(a.Renew(t.Context(), first)); !errors.Is(err, driver.ErrLost) || second.Token <= first.Token {
		t.Errorf("the first holder: %v, want ErrLost; token %d after %d", err, second.Token, first.Token)
	}
	wantHeld(t, a, request("first"), "of the second holder")

	sameBoot := d.bootID("container 2")
	sameBoot.machine = "container 3"
	c := newTestLocker(t, dir, sameBoot)
	wantHeld(t, c, request("third"), "from a container with the same boot")
	mustRenew(t, c, second)
}

// A long lease of such a container is not removed as unused.
func TestPruneOfAContainersLease(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	req := request("first")
	req.TTL = 30 * 24 * time.Hour
	mustAcquire(t, newTestLocker(t, dir, d.bootID("container 1")), req)
	d.advance(2 * defaultRetention)
	backdate(t, filepath.Join(dir, "n.json"), 2*defaultRetention)
	if removed, err := newTestLocker(t, dir, d.bootID("container 2")).prune(t.Context()); removed != 0 || err != nil {
		t.Errorf("%d removed, %v", removed, err)
	}
}

// A record of another machine is an error that names the file, never a grant, even if the lock
// was free.
func TestAnotherMachine(t *testing.T) {
	for _, released := range []bool{false, true} {
		dir, d := t.TempDir(), newFakeClock()
		l := newTestLocker(t, dir, d.clock())
		lease := mustAcquire(t, l, request("first"))
		if released {
			mustRelease(t, l, lease)
		}
		c := d.clock()
		c.boot, c.machine = "boot 2", "machine 2"
		path := filepath.Join(dir, "n.json")
		for call, err := range everyCall(t.Context(), newTestLocker(t, dir, c)) {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another machine") {
				t.Errorf("%s: error %v, want one that names %s and says why", call, err, path)
			}
		}
	}
}

// Where the host name stands for the machine, it may change, as with the network on macOS. A lock that was released under the old name
// can be acquired; one that is held cannot.
func TestHostNameChanges(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	named := func(machine string) clock {
		return clock{now: d.read, boot: "wall clock of " + machine, machine: machine, byHostName: true}
	}
	before, after := newTestLocker(t, dir, named("mac.local")), newTestLocker(t, dir, named("mac.office"))
	first := mustAcquire(t, before, request("first"))
	if _, err := after.TryAcquire(t.Context(), request("second")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("a held lock: %v, want ErrDamaged", err)
	}
	mustRelease(t, before, first)
	if second := mustAcquire(t, after, request("second")); second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if err := errOf(before.Renew(t.Context(), first)); err == nil {
		t.Error("the first lease was renewed after its release")
	}
}

// Promise 8: setting the wall clock ends no lease and extends none.
func TestWallClock(t *testing.T) {
	for _, year := range []int{1960, 2001, 2400} {
		d := newFakeClock()
		l := newTestLocker(t, t.TempDir(), d.clock())
		first := mustAcquire(t, l, request("first"))
		d.setWall(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		if _, err := l.TryAcquire(t.Context(), request("second")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("wall clock in %d: %v, want ErrHeld", year, err)
		}
		if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Remaining != time.Minute {
			t.Errorf("wall clock in %d: %v left (%v), want 1m", year, r.Remaining, err)
		}
		d.advance(time.Minute)
		if second := mustAcquire(t, l, request("second")); second.Token <= first.Token {
			t.Errorf("wall clock in %d: token %d after %d", year, second.Token, first.Token)
		}
	}
}

// The system's clock has the same boot ID at each opening, and its readings rise.
func TestSystemClock(t *testing.T) {
	one, err := systemClock()
	if err != nil {
		t.Fatal(err)
	}
	two, err := systemClock()
	if err != nil {
		t.Fatal(err)
	}
	if one.boot != two.boot || one.machine != two.machine || one.boot == "" || one.machine == "" {
		t.Errorf("two readings of boot and machine differ, or are empty: %q %q, %q %q", one.boot, one.machine, two.boot, two.machine)
	}
	a, err := one.now()
	if err != nil {
		t.Fatal(err)
	}
	b, err := two.now()
	if err != nil || b.Elapsed < a.Elapsed || b.Elapsed-a.Elapsed > time.Minute {
		t.Errorf("readings %v and %v (%v)", a.Elapsed, b.Elapsed, err)
	}
}
