package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/doctor"
	"github.com/holdfast-go/holdfast/internal/faulty"
)

var errBackend = errors.New("the backend failed")

// wrapped is a Locker on a store behind a wrapper, as programs and tests have them.
func wrapped(store *memory.Store, faults faulty.Faults) *faulty.Locker {
	return faulty.New(store.Locker(), faults)
}

func examineLocker(t *testing.T, l driver.Locker) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	checkSecrets(t, r)
	return r
}

// noProbe fails if the probe lock is held, or its record is left.
func noProbe(t *testing.T, store *memory.Store) {
	t.Helper()
	r, err := store.Locker().Inspect(context.WithoutCancel(t.Context()), driver.ProbeName)
	if err != nil || r.State != driver.StateFree || r.Token != 0 {
		t.Errorf("the probe is left: %+v, %v", r, err)
	}
}

// The checks of a driver are found through a wrapper, and the probe leaves nothing.
func TestThroughAWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := wrapped(store, func(op string, _ int, _ driver.Lease) faulty.Fault {
			return faulty.Fault{Delay: 2 * time.Millisecond}
		})
		r := examineLocker(t, l)
		wantHealthy(t, r)
		wantFound(t, r, "store", driver.LevelOK, "")
		wantFound(t, r, "latency of renew", driver.LevelOK, "")
		if n := l.Count(faulty.OpCheck); n != 2 {
			t.Errorf("the wrapper saw %d calls of the Checker, want Check and RemoveProbe", n)
		}
		noProbe(t, store)
	})
}

// A driver without checks of its own is examined from outside.
func TestWithoutAChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := examineLocker(t, uncheckable{memory.New()})
		wantFound(t, r, "the driver's checks", driver.LevelUnchecked, "")
		wantFound(t, r, "records", driver.LevelUnchecked, "")
		wantFound(t, r, "removal of the probe", driver.LevelUnchecked, "")
		wantFound(t, r, "latency of acquire", driver.LevelOK, "")
	})
}

// A lock that declares no longest TTL has any.
func TestProbeWithoutALongestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { wantHealthy(t, examineLocker(t, endless{memory.New()})) })
}

type endless struct{ driver.Locker }

func (e endless) Info() driver.Info {
	info := e.Locker.Info()
	info.Limits.MaxTTL = 0
	return info
}

type uncheckable struct{ driver.Locker }

func (uncheckable) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// Whatever fails is reported, and the probe is gone afterwards.
func TestFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		op, subject string
		fault       faulty.Fault
		level       driver.Level
	}{
		{faulty.OpAcquire, "probe lock", faulty.Fault{Refuse: errBackend}, driver.LevelWrong},
		{faulty.OpAcquire, "probe lock", faulty.Fault{Lose: errBackend}, driver.LevelWrong}, // it was granted all the same
		{faulty.OpAcquire, "latency of acquire", faulty.Fault{Delay: 2 * time.Second}, driver.LevelDoubtful},
		{faulty.OpRenew, "latency of renew", faulty.Fault{Refuse: errBackend}, driver.LevelWrong},
		{faulty.OpRenew, "latency of renew", faulty.Fault{Delay: 2 * time.Second}, driver.LevelDoubtful},
		{faulty.OpRead, "latency of inspect", faulty.Fault{Refuse: errBackend}, driver.LevelWrong},
		{faulty.OpRelease, "latency of release", faulty.Fault{Lose: errBackend}, driver.LevelWrong},
		{faulty.OpList, "records", faulty.Fault{Refuse: errBackend}, driver.LevelWrong},
		{faulty.OpCheck, "the driver's checks", faulty.Fault{Refuse: errBackend}, driver.LevelWrong},
	} {
		t.Run(c.op+" "+c.subject, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				l := wrapped(store, func(op string, n int, _ driver.Lease) faulty.Fault {
					time.Sleep(2 * time.Millisecond) // the removal needs a later time than the grant
					if op == c.op && n == 1 {
						return c.fault
					}
					return faulty.Fault{}
				})
				r := examineLocker(t, l)
				if before := c.op == faulty.OpCheck || c.op == faulty.OpList; before && l.Count(faulty.OpAcquire) > 0 {
					t.Error("a lock was taken although something was wrong")
				}
				f := wantFound(t, r, c.subject, c.level, "")
				if c.fault.Delay == 0 && !strings.Contains(f.Detail, errBackend.Error()) {
					t.Errorf("the detail is %q", f.Detail)
				}
				if r.Verdict() != c.level {
					t.Errorf("the verdict is %v, want %v", r.Verdict(), c.level)
				}
				noProbe(t, store)
			})
		})
	}
}

// withoutStore is a Locker of a backend that has no store yet.
type withoutStore struct{ driver.Locker }

func (withoutStore) MissingStore(context.Context) (string, error) { return "the table locks", nil }

// A store that the first program will make is nothing wrong, and no record is left in it.
func TestProbeWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := wrapped(memory.NewStore(), func(op string, _ int, _ driver.Lease) faulty.Fault {
			if op == faulty.OpAcquire || op == faulty.OpRelease {
				return faulty.Fault{Refuse: driver.Denied(errBackend)}
			}
			return faulty.Fault{}
		})
		r := examineLocker(t, withoutStore{refused})
		wantFound(t, r, "probe lock", driver.LevelUnchecked, "a program has used the locks")
		if f, found := finding(r, "removal of the probe"); found || r.Verdict() == driver.LevelWrong {
			t.Errorf("the verdict is %v, %v", r.Verdict(), f)
		}
		wantFound(t, examineLocker(t, refused), "probe lock", driver.LevelWrong, "")
	})
}

// A record that cannot be removed is said to stay.
func TestProbeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := examineLocker(t, wrapped(memory.NewStore(), func(op string, n int, _ driver.Lease) faulty.Fault {
			if op == faulty.OpCheck && n == 2 {
				return faulty.Fault{Refuse: errBackend}
			}
			return faulty.Fault{}
		}))
		wantFound(t, r, "removal of the probe", driver.LevelUnchecked, "right to delete")
		if r.Verdict() != driver.LevelOK {
			t.Errorf("the verdict is %v", r.Verdict())
		}
	})
}

// An interruption at any call ends the check, and the probe is released and removed.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{faulty.OpCheck, faulty.OpList, faulty.OpAcquire, faulty.OpRenew, faulty.OpRead, faulty.OpRelease} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				store := memory.NewStore()
				l := wrapped(store, func(op string, n int, _ driver.Lease) faulty.Fault {
					time.Sleep(2 * time.Millisecond)
					if op == at && n == 1 {
						cancel()
						return faulty.Fault{Delay: time.Millisecond}
					}
					return faulty.Fault{}
				})
				if _, err := doctor.Examine(ctx, l); !errors.Is(err, context.Canceled) {
					t.Errorf("the error is %v", err)
				}
				noProbe(t, store)
			})
		})
	}
}

// Two checks at a time: the second waits for the first, and gives up if that takes too long.
func TestProbeOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := store.Locker()
		lease, err := other.TryAcquire(t.Context(), driver.Request{Name: driver.ProbeName, ID: driver.NewLeaseID("other"), Owner: "host/2",
			TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		r := examineLocker(t, wrapped(store, nil))
		wantFound(t, r, "probe lock", driver.LevelUnchecked, "later")
		if _, found := finding(r, "removal of the probe"); found {
			t.Error("the other's probe was removed")
		}
		if _, err := other.Renew(t.Context(), lease); err != nil {
			t.Errorf("the other's probe is gone: %v", err)
		}
		time.AfterFunc(5*time.Second, func() { _ = other.Release(context.WithoutCancel(t.Context()), lease) })
		wantFound(t, examineLocker(t, wrapped(store, nil)), "probe lock", driver.LevelOK, "")
	})
}

// A lease that was not renewed in time is about to be lost; one that was, or is broken, is not.
func TestLeasesAboutToBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		acquire := func(name string, ttl time.Duration) {
			t.Helper()
			if _, err := l.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID(name), Owner: "host/1", TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		acquire("old", 30*time.Second)
		acquire("broken", 30*time.Second)
		if err := l.Break(t.Context(), "broken", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(26 * time.Second)
		acquire("new", 30*time.Second)
		f := wantFound(t, examineLocker(t, wrapped(store, nil)), "leases", driver.LevelDoubtful, "owners run")
		if want := `1 of 3 held locks are about to be lost: "old" of "host/1" has 4s left of 30s`; f.Detail != want {
			t.Errorf("the detail is %q, want %q", f.Detail, want)
		}
		time.Sleep(5 * time.Second)
		wantFound(t, examineLocker(t, wrapped(store, nil)), "leases", driver.LevelOK, "")
	})
}

// A backend's clock far from this machine's is doubtful, since people compare times.
func TestClockOfTheBackend(t *testing.T) {
	for offset, level := range map[time.Duration]driver.Level{0: driver.LevelOK, 3 * time.Second: driver.LevelOK,
		time.Minute: driver.LevelDoubtful, -time.Minute: driver.LevelDoubtful} {
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(offset) }))
		wantFound(t, examineLocker(t, wrapped(store, nil)), "clock of the backend", level, "")
	}
}

// A URL that is wrong is no finding, and its password is not shown.
func TestWrongURL(t *testing.T) {
	for _, url := range []string{"mongodb://user:s3cr3t@127.0.0.1/app?wake=loud", "mongodb://user:s3cr3t@127.0.0.1", "file:x?unknown=1",
		"azblob://account", "nothing"} {
		if r, err := doctor.Run(t.Context(), url); r != nil || !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, %v", url, r, err)
		}
	}
}

// The text fits a terminal of 80 columns, says the level in words, and lets no text control the
// terminal. What is worst comes last.
func TestText(t *testing.T) {
	r := &doctor.Report{Findings: []driver.Finding{
		{Subject: "clocks of the members", Detail: strings.Repeat("word ", 40)},
		{Subject: "lifecycle rules", Level: driver.LevelUnchecked, Detail: "\x1b[31mred\x1b[0m"},
		{Subject: "TTL index", Level: driver.LevelDoubtful, Detail: "d", Remedy: strings.Repeat("do ", 60),
			Command: "a command that is not broken " + strings.Repeat("x ", 50)},
		{Subject: "members", Level: driver.LevelWrong, Detail: "d", Remedy: "r"},
	}}
	text := textOf(t, r)
	for line := range strings.Lines(text) {
		if n := len(strings.TrimSuffix(line, "\n")); n > 80 && !strings.Contains(line, "not broken") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"ok        clocks of the members   word", "?         lifecycle rules", "DOUBTFUL  TTL index",
		"WRONG     members                 d\n          -> r\n",
		fmt.Sprintf("wrong: %d right, %d not checked, %d doubtful, %d wrong\n", 1, 1, 1, 1)} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("the text controls the terminal: %q", text)
	}
	var short strings.Builder
	if err := r.WriteText(&short, true); err != nil || strings.Contains(short.String(), "lifecycle") ||
		!strings.Contains(short.String(), "TTL index") {
		t.Errorf("the problems alone: %v\n%s", err, short.String())
	}
}

// What the backend promises is reported as the driver declares it, and doubtful if two holders can have a lock.
func TestPromises(t *testing.T) {
	for _, c := range []struct {
		change                  func(*driver.Info)
		subject, detail, remedy string
		level                   driver.Level
	}{
		{func(*driver.Info) {}, "end of leases", "the backend's clock", "", driver.LevelOK},
		{func(*driver.Info) {}, "fail-over", "outlives", "", driver.LevelOK},
		{func(*driver.Info) {}, "free locks", "their records stay, with their data", "", driver.LevelOK},
		{func(i *driver.Info) { i.Expiry = driver.ByObservation }, "end of leases", "has no clock", "", driver.LevelOK},
		{func(i *driver.Info) { i.Expiry = 0 }, "end of leases", "does not declare", "", driver.LevelUnchecked},
		{func(i *driver.Info) { i.Failover = driver.GrantsMayBeForgotten }, "fail-over", "two holders", "backend whose grants survive",
			driver.LevelDoubtful},
		{func(i *driver.Info) { i.Failover = 0 }, "fail-over", "does not declare", "", driver.LevelUnchecked},
		{func(i *driver.Info) { i.Free.RemovedAfter = 24 * time.Hour }, "free locks", "for 24h and are then removed", "", driver.LevelOK},
		{func(i *driver.Info) { i.Free = driver.FreeRecord{} }, "free locks", "they keep no data", "", driver.LevelOK},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := declared{memory.New(), c.change}
			f := wantFound(t, examineLocker(t, l), c.subject, c.level, c.remedy)
			if !strings.Contains(f.Detail, c.detail) {
				t.Errorf("%s: %q, want %q", c.subject, f.Detail, c.detail)
			}
		})
	}
}

// declared is a Locker that declares something else.
type declared struct {
	driver.Locker
	change func(*driver.Info)
}

func (d declared) Info() driver.Info {
	info := d.Locker.Info()
	d.change(&info)
	return info
}

// writing is a driver that can also try what only writes show.
type writing struct {
	driver.Locker
	level driver.Level
}

func (w writing) CheckWrites(_ context.Context, report func(driver.Finding)) error {
	report(driver.Finding{Subject: "race of writes", Level: w.level, Detail: "raced", Remedy: "Stop all programs."})
	return nil
}

// What only writes show is tried through a wrapper, and no lock is taken on a backend that it shows to be wrong.
func TestWritesAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, probe := range map[driver.Level]driver.Level{driver.LevelOK: driver.LevelOK, driver.LevelWrong: driver.LevelUnchecked} {
			pass := func(ctx context.Context, c driver.Call, next driver.Next) driver.Answer { return next(ctx, c) }
			r := examineLocker(t, driver.Intercept(writing{memory.New(), level}, pass))
			wantFound(t, r, "race of writes", level, "Stop all programs")
			wantFound(t, r, "probe lock", probe, "")
		}
	})
}
