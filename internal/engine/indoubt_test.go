package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// notSent is the error of a request for a lock that never left the process.
func notSent(op, name string) error {
	return &driver.OpError{Op: op, Backend: "memory", Name: name, Err: errors.New("connection refused"), NotSent: true}
}

// doubt is a call whose request for "job" may have been applied although no answer says so, or whose refusal is certain.
type doubt struct {
	faults  locktest.Faults // or nil
	answer  answer          // or nil
	opts    []holdfast.ClientOption
	take    func(ctx context.Context, t *testing.T, c *holdfast.Client) error
	want    error // of the call; nil: any
	takes   time.Duration
	mode    driver.Mode
	free    time.Duration // so long after the call the lock is free
	taken   bool          // by another process
	certain bool          // nothing is cleaned up, nor reported as a failure
}

// answer takes the place of the backend's answer, after the request was applied or refused. It may end the caller's context.
type answer = func(ctx context.Context, end context.CancelCauseFunc, err error) error

func try(opts ...holdfast.Option) func(context.Context, *testing.T, *holdfast.Client) error {
	return func(ctx context.Context, _ *testing.T, c *holdfast.Client) error {
		_, err := c.TryLock(ctx, "job", opts...)
		return err
	}
}

func wait(limit time.Duration) func(context.Context, *testing.T, *holdfast.Client) error {
	return func(ctx context.Context, _ *testing.T, c *holdfast.Client) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		return err
	}
}

// tooLate ends the caller's context after a second. The answer has its cause, which looks like one of the request.
func tooLate(ctx context.Context, end context.CancelCauseFunc, _ error) error {
	time.AfterFunc(time.Second, func() { end(&holdfast.HeldError{Record: holdfast.Record{Name: "another"}}) })
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
}

// anotherNotSent ends the caller's context because another call was not sent. The answer has that cause, and so says nothing of this one.
func anotherNotSent(wrap func(error) error) answer {
	return func(ctx context.Context, end context.CancelCauseFunc, _ error) error {
		end(notSent("acquire", "another"))
		return wrap(context.Cause(ctx))
	}
}

var lost = locktest.Each(locktest.OpAcquire, locktest.Fault{Lose: locktest.ErrInjected})

// A request that may have been applied is cleaned up, whatever its error looks like: the lock does not stay held for the rest of its
// TTL. After a refusal there is nothing to clean up.
func TestRequestInDoubtIsCleanedUp(t *testing.T) {
	locktest.Rows(t, map[string]doubt{
		"the calls of a cleanup have the request timeout, not a share of the TTL": {
			take: try(), want: locktest.ErrInjected, free: 20 * time.Second,
			faults: locktest.Together(lost, locktest.Each(locktest.OpRelease, locktest.Fault{Delay: 5 * time.Second})),
			opts: []holdfast.ClientOption{holdfast.WithTTL(30 * time.Second), holdfast.WithGrace(10 * time.Second),
				holdfast.WithRequestTimeout(8 * time.Second)}},
		"a reader, whose lease MongoDB finds by its mode only": {take: try(holdfast.WithShared()), faults: lost, mode: driver.Shared,
			want: locktest.ErrInjected, free: time.Second},
		"a release that failed": {faults: locktest.First(locktest.OpRelease, locktest.Fault{Refuse: locktest.ErrInjected}),
			take: func(ctx context.Context, t *testing.T, c *holdfast.Client) error {
				h := locktest.MustLock(t, c, "job")
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return h.Release(ctx)
			}, want: locktest.ErrInjected, free: time.Second},
		"no answer, then requests that were not sent": {take: wait(2 * time.Second), takes: 2 * time.Second, want: context.DeadlineExceeded,
			faults: locktest.Together(locktest.First(locktest.OpAcquire, locktest.Fault{Lose: locktest.ErrInjected}),
				locktest.Each(locktest.OpAcquire, locktest.Fault{Refuse: notSent("acquire", "job")})), free: time.Second},
		"another call that was not sent": {take: try(), answer: anotherNotSent(func(err error) error { return err }), free: time.Second},
		"another call that was not sent, within an error": {take: try(), free: time.Second, answer: anotherNotSent(func(err error) error {
			return &driver.OpError{Op: "acquire", Backend: "memory", Name: "job", Err: fmt.Errorf("%w (%w)", context.Canceled, err)}
		})},
		"TryLock, canceled": {take: try(), answer: tooLate, takes: time.Second},
		"Lock, canceled":    {take: wait(time.Minute), answer: tooLate, takes: time.Second},
		"Shutdown is the cause": {answer: func(ctx context.Context, _ context.CancelCauseFunc, _ error) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
		}, takes: time.Second, take: func(ctx context.Context, _ *testing.T, c *holdfast.Client) error {
			time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
			err := c.Do(ctx, "outer", func(ctx context.Context) error { _, err := c.Lock(ctx, "job"); return err })
			return errors.Join(err, c.Shutdown(ctx))
		}},
		"a refusal at the end of the context": {take: try(), taken: true, certain: true, want: driver.ErrHeld,
			answer: func(_ context.Context, end context.CancelCauseFunc, err error) error { end(nil); return err }},
		"ErrHeld without a record": {take: try(), certain: true, want: driver.ErrHeld, faults: locktest.Each(locktest.OpAcquire,
			locktest.Fault{Refuse: &driver.OpError{Op: "acquire", Backend: "x", Name: "job", Err: holdfast.ErrHeld}})},
	}, func(t *testing.T, d doubt) {
		store := memory.NewStore()
		if d.taken {
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		}
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		under := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			a := next(ctx, call)
			if d.answer != nil && call.Method == driver.MethodTryAcquire && call.Request.Name == "job" {
				a = driver.Answer{Err: d.answer(ctx, end, a.Err)}
			}
			return a
		})
		var mu sync.Mutex
		var modes []driver.Mode // of the releases
		f := locktest.NewFaulty(t, under, func(op string, n int, l holdfast.Lease) (none locktest.Fault) {
			if op == locktest.OpRelease && l.Name == "job" {
				mu.Lock()
				modes = append(modes, l.Mode)
				mu.Unlock()
			}
			if d.faults == nil {
				return none
			}
			return d.faults(op, n, l)
		})
		var seen locktest.Events
		c := locktest.NewClient(t, f, append(d.opts, holdfast.WithObserver(seen.Observe))...)
		start := time.Now()
		if err := d.take(ctx, t, c); err == nil || d.want != nil && !errors.Is(err, d.want) || time.Since(start) != d.takes {
			t.Errorf("after %v, want %v: %v", time.Since(start), d.takes, err)
		}
		if d.certain {
			time.Sleep(time.Minute)
			if f.Count(locktest.OpRelease) > 0 || seen.Count(holdfast.EventError) > 0 {
				t.Errorf("%d releases, events %v", f.Count(locktest.OpRelease), seen.Types())
			}
			return
		}
		time.Sleep(d.free)
		synctest.Wait()
		if locktest.IsHeld(t, store, "job") {
			t.Errorf("still held %v later", d.free)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(modes) == 0 {
			t.Error("no release was sent")
		}
		for _, m := range modes {
			if m != d.mode {
				t.Errorf("a release has the mode %v", m)
			}
		}
	})
}

// A request that was not sent leaves nothing to clean up, so Shutdown returns at once although no backend answers.
func TestShutdownAfterARequestThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dead := memory.NewStore(), driver.Denied(errors.New("nothing answers")) // a release must not even be tried
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpAcquire {
				return locktest.Fault{Refuse: notSent("acquire", "job")}
			}
			return locktest.Fault{Refuse: dead}
		})
		c := locktest.NewClient(t, f)
		err := c.TryDo(t.Context(), "job", func(context.Context) error { return nil })
		if !driver.NotSent(err) {
			t.Errorf("TryDo: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) || f.Count(locktest.OpAcquire) < 3 {
			t.Errorf("Lock, after %d requests: %v", f.Count(locktest.OpAcquire), err)
		}
		start := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Shutdown took %v: %v", time.Since(start), err)
		}
		if n := f.Count(locktest.OpRelease); n > 0 {
			t.Errorf("%d releases of a request that was not sent", n)
		}
	})
}

// answeredRelease is a release, and how its requests are answered.
type answeredRelease struct {
	faults   locktest.Faults
	requests int              // 0: any number
	held     bool             // afterwards, after a release without an error
	wrong    func(error) bool // nil: Release succeeds
}

// A release is retried until an answer says that the lease does not hold the lock: a person may repair the backend before it expires.
// The error says that the outcome is unknown if a request may have been applied. With denials alone, or requests that were not sent,
// the lock is certainly still held.
func TestAnswersOfARelease(t *testing.T) {
	refuse := func(err error) locktest.Fault { return locktest.Fault{Refuse: err} }
	denied := refuse(refusal("release", "job", driver.Denied))
	unsent := refuse(notSent("release", "job"))
	deniedAfter := func(unknown int) answeredRelease { // so many requests are not answered
		certain := unknown == 0
		return answeredRelease{faults: locktest.Together(locktest.UpTo(locktest.OpRelease, unknown, refuse(locktest.ErrInjected)),
			locktest.Each(locktest.OpRelease, denied)), wrong: func(err error) bool {
			return errors.Is(err, driver.ErrDenied) != certain || driver.OutcomeKnown(err) != certain ||
				errors.Is(err, locktest.ErrInjected) == certain ||
				strings.Contains(err.Error(), "outcome unknown") == certain || !strings.Contains(err.Error(), "read-only")
		}}
	}
	locktest.Rows(t, map[string]answeredRelease{
		"denied three times": {faults: locktest.UpTo(locktest.OpRelease, 3, denied), requests: 4},
		"not sent, once":     {faults: locktest.First(locktest.OpRelease, unsent), requests: 2},
		"lost": {faults: locktest.Each(locktest.OpRelease, refuse(holdfast.ErrLost)), requests: 1,
			held: true}, // the driver says that this lease does not hold the lock
		"denied":                        deniedAfter(0),
		"denied after an unknown one":   deniedAfter(1),
		"denied after two unknown ones": deniedAfter(2),
		"not sent": {faults: locktest.Each(locktest.OpRelease, unsent), wrong: func(err error) bool {
			return err.Error() != `holdfast: release "job": the lock may stay held until its lease expires: `+
				`release "job" on memory: connection refused`
		}},
	}, func(t *testing.T, row answeredRelease) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), row.faults)
		err := locktest.MustLock(t, locktest.NewClient(t, f), "job").Release(t.Context())
		if n := f.Count(locktest.OpRelease); row.requests > 0 && n != row.requests {
			t.Errorf("%d requests, want %d", n, row.requests)
		}
		switch {
		case row.wrong == nil && (err != nil || locktest.IsHeld(t, store, "job") != row.held):
			t.Errorf("Release: %v; held: %v", err, locktest.IsHeld(t, store, "job"))
		case row.wrong != nil && (err == nil || row.wrong(err)):
			t.Errorf("Release: %v", err)
		}
	})
}
