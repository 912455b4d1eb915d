package file

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// After a reboot every lock is free and has its data. Its token still rises, although the wall
// clock was set back.
func TestReboot(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	l := newTestLocker(t, dir, d.clock())
	before := mustAcquire(t, l, request("first"))

	rebooted := d.clock()
	rebooted.boot = "boot 2"
	d.setWall(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	l = newTestLocker(t, dir, rebooted)
	r, err := l.Inspect(t.Context(), "n")
	if err != nil || r.State != driver.StateFree || r.Token != before.Token || string(r.Data) != "data" {
		t.Errorf("after the reboot: %+v, error %v; want free, with token and data", r, err)
	}
	if _, err := l.Renew(t.Context(), before); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of a lease from before the reboot: %v, want ErrLost", err)
	}
	req := request("second")
	req.Data = nil
	after := mustAcquire(t, l, req)
	if after.Token != before.Token+1 {
		t.Errorf("token %d after %d, want the next", after.Token, before.Token)
	}
	if data, _, err := l.ReadData(t.Context(), "n"); err != nil || string(data) != "data" {
		t.Errorf("data %q, error %v", data, err)
	}
	if _, err := l.TryAcquire(t.Context(), request("third")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a lock taken after the reboot: %v, want ErrHeld", err)
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
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
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

// Containers on one host see the same boot but different machines.
func TestSameBoot(t *testing.T) {
	dir, d := t.TempDir(), newFakeClock()
	lease := mustAcquire(t, newTestLocker(t, dir, d.clock()), request("first"))
	c := d.clock()
	c.machine = "container 2"
	l := newTestLocker(t, dir, c)
	if _, err := l.TryAcquire(t.Context(), request("second")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("from another container: %v, want ErrHeld", err)
	}
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Errorf("renewal from another container: %v", err)
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
