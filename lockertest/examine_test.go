package lockertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// examine returns the outcomes by clause. around, unless it is nil, stands between the suite and the store.
func examine(ctx context.Context, t *testing.T, around func(context.Context, driver.Call, driver.Next) driver.Answer) (
	map[string]Outcome, error) {
	t.Helper()
	store, found := memory.NewStore(), map[string]Outcome{}
	open := func(context.Context) (driver.Locker, error) {
		if around == nil {
			return store.Locker(), nil
		}
		return driver.Intercept(store.Locker(), around), nil
	}
	err := Examine(ctx, open, Config{}, func(o Outcome) {
		if _, twice := found[o.Clause]; twice {
			t.Errorf("%s was reported twice", o.Clause)
		}
		found[o.Clause] = o
	})
	return found, err
}

// Each clause is reported once: as checked, or with the reason why it was not.
func TestExamine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, err := examine(t.Context(), t, nil)
		if err != nil || len(found) != Clauses() {
			t.Errorf("%d of %d clauses were reported, error %v", len(found), Clauses(), err)
		}
		for _, c := range clauses() {
			o := found[c.name]
			if len(o.Failures) > 0 || o.Says != c.says {
				t.Errorf("%+v", o)
			}
			if beyond := c.needs&(canForget|canStall|canFailOver|canDeny|canDamage|canAdvance) != 0; beyond && len(o.LeftOut) == 0 {
				t.Errorf("%s was checked, although it needs more than calls", c.name)
			}
			for _, why := range o.LeftOut {
				if strings.Contains(why, "Config.") {
					t.Errorf("%s was left out for a reason that only a test can change: %s", c.name, why)
				}
			}
		}
	})
}

// A store that lets two hold one lock fails.
func TestExamineSick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, err := examine(t.Context(), t, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			a := next(ctx, call)
			if call.Method == driver.MethodTryAcquire && errors.Is(a.Err, driver.ErrHeld) {
				return driver.Answer{Lease: driver.Lease{Name: call.Request.Name, ID: call.Request.ID, Owner: call.Request.Owner,
					TTL: call.Request.TTL, Mode: call.Request.Mode, Token: 1 << 60}}
			}
			return a
		})
		if o := found["race/exclusion"]; err != nil || !slices.ContainsFunc(o.Failures, func(f string) bool {
			return strings.Contains(f, "hold the lock at once") || strings.Contains(f, "another ID")
		}) {
			t.Errorf("error %v, race/exclusion: %q", err, o.Failures)
		}
	})
}

// A store that is out of reach for a moment keeps the clauses, and one that never answers a method does not.
func TestExamineUnanswered(t *testing.T) {
	for name, lost := range map[string]int64{"at first": 2, "never": 1 << 62} { // of the renewals, so many are not answered
		synctest.Test(t, func(t *testing.T) {
			var renewals atomic.Int64
			found, err := examine(t.Context(), t, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method == driver.MethodRenew && renewals.Add(1) <= lost {
					return driver.Answer{Err: &driver.OpError{Op: "renew", Name: call.Lease.Name, Backend: "mem", Err: errors.New("no server")}}
				}
				return next(ctx, call)
			})
			broken := 0
			for _, o := range found {
				if len(o.Failures) > 0 {
					broken++
				}
			}
			if wanted := lost > 2; err != nil || broken > 0 != wanted || len(found["renew/extends"].Failures) > 0 != wanted {
				t.Errorf("answers that come %s: error %v, %d clauses are broken, renew/extends: %q", name, err, broken,
					found["renew/extends"].Failures)
			}
		})
	}
}

// An answer that is wrong, whatever the backend did, is no missing one: its clause is not checked again.
func TestWrongIsNotUnanswered(t *testing.T) {
	noServer := errors.New("no server")
	hides := func(after func(c *call) bool, err func(name string) error) spoil {
		return chain(ignores(driver.MethodClose, func(c *call) bool { c.note("closed", true); return true }),
			each(func(c *call) driver.Answer {
				if end, limited := c.ctx.Deadline(); limited && time.Until(end) < time.Second {
					<-c.ctx.Done()
				}
				if after(c) {
					return driver.Answer{Err: err(c.lock())}
				}
				return c.send()
			}))
	}
	ended := func(c *call) bool { return c.ctx.Err() != nil }
	closed := func(c *call) bool { return c.noted("closed") != nil }
	unanswered := func(name string) error { return opErr(name, noServer) }
	for _, c := range []struct {
		clause string
		do     spoil
	}{
		{"context/ended before", hides(ended, unanswered)},
		{"context/ends during", hides(ended, unanswered)},
		{"context/ends during", hides(ended, func(name string) error { return opErr(name, driver.ErrClosed) })},
		{"batch/context ended", hides(ended, unanswered)},
		{"release batch/context ended", hides(ended, unanswered)},
		{"inspectbatch/context ended", hides(ended, unanswered)},
		{"close/ErrClosed", hides(closed, unanswered)},
		{"close/while in use", hides(closed, unanswered)},
		{"close/ended context", hides(closed, unanswered)},
		{"name/invalid", hides(always, unanswered)},
		{"acquire/free", hides(always, func(string) error { return driver.Errorf("%w", noServer) })},
		{"acquire/free", hides(always, func(string) error { return opErr("another", noServer) })},
		{"acquire/free", hides(always, func(name string) error { return &driver.OpError{Op: "try", Name: name, Err: noServer} })},
	} {
		cfg := newFixture().config(fault{do: c.do})
		cfg.Slack = 50 * time.Millisecond
		s := newSuite(t, cfg)
		for _, run := range clauses() {
			if run.name != c.clause {
				continue
			}
			ck := s.start(t, run)
			if failures := s.await(ck); len(failures) == 0 || ck.onlyUnanswered() {
				t.Errorf("%s is checked again after %q", c.clause, failures)
			}
		}
	}
}

// Examine ends soon after its context, and then reports no clause as failed.
func TestExamineInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		found, err := examine(ctx, t, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > time.Second {
			t.Errorf("error %v after %v", err, time.Since(begun))
		}
		for _, o := range found {
			if len(o.Failures) > 0 {
				t.Errorf("%s failed: %q", o.Clause, o.Failures)
			}
		}
	})
	if err := Examine(t.Context(), func(context.Context) (driver.Locker, error) { return nil, driver.ErrDenied }, Config{}, nil); !errors.Is(
		err, driver.ErrDenied) {
		t.Errorf("a store that cannot be opened: %v", err)
	}
}
