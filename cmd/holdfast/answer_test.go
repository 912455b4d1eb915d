//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// What a backend answers a request that comes some time after the start. nil: the lock is granted, if it is free.
type answers func(after time.Duration) error

var (
	errRefused = &driver.OpError{Op: "acquire", Backend: "mem", Name: "job", Err: errors.New("connection refused"), NotSent: true}
	errDoubt   = &driver.OpError{Op: "acquire", Backend: "mem", Name: "job", Err: errors.New("connection reset")}
	errDenied  = &driver.OpError{Op: "acquire", Backend: "mem", Name: "job", Err: driver.Denied(errors.New("no right"))}
	errTurn    = &driver.HeldError{Record: driver.Record{Name: "job"}, Reserved: true}
)

func always(err error) answers { return func(time.Duration) error { return err } }

// until answers with err, and from a time on grants the lock.
func until(end time.Duration, err error) answers {
	return func(after time.Duration) error {
		if after < end {
			return err
		}
		return nil
	}
}

// errHang stands for an answer that does not come before the request has ended.
var errHang = errors.New("hang")

// A backend that has not answered since the start is waited for as long as the flags say, and no longer, whether opening it asks the
// server or not. Once it has answered, it is waited for like a lock.
func TestFirstAnswer(t *testing.T) {
	wait := func(d time.Duration) *time.Duration { return &d }
	const granted = 0
	const gone = exitcode.Unavailable
	for name, test := range map[string]struct {
		flags   runCmd
		answers answers
		code    int
		after   time.Duration
	}{
		"never":                        {runCmd{}, always(errRefused), gone, 10 * time.Second},
		"never, hangs":                 {runCmd{}, always(errHang), gone, 10 * time.Second},
		"never, in doubt":              {runCmd{}, always(errDoubt), gone, 10 * time.Second},
		"never, --wait shorter":        {runCmd{Wait: wait(4 * time.Second)}, always(errRefused), gone, 4 * time.Second},
		"never, hangs, --wait shorter": {runCmd{Wait: wait(2 * time.Second)}, always(errHang), gone, 2 * time.Second},
		"never, --wait longer":         {runCmd{Wait: wait(time.Minute)}, always(errRefused), gone, time.Minute},
		"never, --keep":                {runCmd{Keep: true}, always(errRefused), 143, 5 * time.Minute},
		"never, --keep --wait":         {runCmd{Keep: true, Wait: wait(time.Minute)}, always(errRefused), gone, time.Minute},
		"never, --try":                 {runCmd{Try: true}, always(errRefused), gone, 10 * time.Second},
		"never, --try --keep":          {runCmd{Try: true, Keep: true}, always(errRefused), 143, 5 * time.Minute},
		"--try, in doubt":              {runCmd{Try: true}, always(errDoubt), gone, 0},
		"--try, held":                  {runCmd{Try: true, ConflictExitCode: 75}, always(errTurn), 75, 0},
		"a person must mend it":        {runCmd{}, always(errDenied), gone, 0},
		"starts together":              {runCmd{}, until(6*time.Second, errRefused), granted, 6 * time.Second},
		"starts together, --try":       {runCmd{Try: true}, until(6*time.Second, errRefused), granted, 6 * time.Second},
		"reserved for another":         {runCmd{}, until(time.Minute, errTurn), granted, time.Minute},
		"reserved, --wait":             {runCmd{Wait: wait(time.Minute), ConflictExitCode: 75}, always(errTurn), 75, time.Minute},
		"fails after an answer": {runCmd{}, func(after time.Duration) error {
			if after < time.Second {
				return errTurn
			}
			return until(time.Minute, errRefused)(after)
		}, granted, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				test.flags.Name, test.flags.Slots = "job", 1
				start, log := time.Now(), messages.NewLog(&out, false, false)
				run := &runner{runCmd: &test.flags, log: log, waitStart: start, answered: func() {},
					signals: signals.Caught{C: make(chan os.Signal, 1)},
					events:  &eventLogger{log: log, backend: "mem://", try: test.flags.Try}}
				var err error
				locker := driver.Intercept(memory.New(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					if call.Method == driver.MethodTryAcquire {
						switch err := test.answers(time.Since(start)); {
						case errors.Is(err, errHang):
							<-ctx.Done()
							return driver.Answer{Err: &driver.OpError{Op: "acquire", Backend: "mem", Name: "job", Err: ctx.Err()}}
						case err != nil:
							return driver.Answer{Err: err}
						}
					}
					return next(ctx, call)
				})
				run.client, err = holdfast.New(driver.Intercept(locker, run.events.around),
					append(bubbleOptions(), holdfast.WithObserver(run.events.observe))...)
				if err != nil {
					t.Fatal(err)
				}
				defer time.AfterFunc(5*time.Minute, func() { run.signals.C <- syscall.SIGTERM }).Stop()
				hold, err := run.acquire()
				took, code := time.Since(start), 0
				if err != nil {
					code = exitcode.Of(err)
				} else {
					run.release(hold.lease)
				}
				run.close()
				limit := 500 * time.Millisecond
				if code == granted {
					limit = 10 * time.Second // the next request comes after a backoff
				}
				if code != test.code || took < test.after || took > test.after+limit {
					t.Errorf("exit code %d after %v, want %d after %v: %v", code, took, test.code, test.after, err)
				}
				within := "10s"
				if test.flags.Wait != nil {
					within = "--wait " + driver.FormatDuration(*test.flags.Wait)
				}
				want := fmt.Sprintf("could not reach mem:// within %s: holdfast: acquire \"job\" on mem: ", within)
				if says := err != nil && strings.HasPrefix(err.Error(), want); says != (test.code == gone && test.after > 0) {
					t.Errorf("the error is %v", err)
				}
				time.Sleep(10 * time.Minute) // cleanups end
			})
		})
	}
}

// The same holds for opening a backend, and for the first question of commands that follow locks.
func TestFollowingWaitsForTheFirstAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		opens, answers answers
		want           string // of the error; empty: the command follows
		after          time.Duration
		asked          int64 // requests at most
	}{
		"opens":                      {always(nil), always(nil), "", 0, 2},
		"cannot be opened":           {always(errRefused), always(nil), "could not reach mem:// within 10s: ", 10 * time.Second, 11},
		"opens later":                {until(6*time.Second, errRefused), always(nil), "", 6 * time.Second, 9},
		"does not answer":            {always(nil), always(errRefused), "could not reach mem:// within 10s: ", 10 * time.Second, 12},
		"hangs":                      {always(nil), always(errHang), "could not reach mem:// within 10s: ", 10 * time.Second, 4},
		"answers later":              {always(nil), until(6*time.Second, errRefused), "", 6 * time.Second, 9},
		"a person must mend it":      {always(errDenied), always(nil), "holdfast: acquire \"job\" on mem: no right", 0, 1},
		"it must not see the folder": {always(nil), always(errDenied), "", 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				start, asked := time.Now(), atomic.Int64{}
				a := &app{log: messages.NewLog(&out, false, false), backend: "mem:"}
				open := func(context.Context, ...holdfast.ClientOption) (*holdfast.Client, error) {
					asked.Add(1)
					if err := test.opens(time.Since(start)); err != nil {
						return nil, err
					}
					return holdfast.New(asksForStore{memory.New(), func(ctx context.Context) error {
						asked.Add(1)
						err := test.answers(time.Since(start))
						if errors.Is(err, errHang) {
							<-ctx.Done()
							return ctx.Err()
						}
						return err
					}}, bubbleOptions()...)
				}
				follows := false
				err := a.followUntil(&signals.Caught{C: make(chan os.Signal, 1)}, open, func(ctx context.Context, client *holdfast.Client) error {
					err := a.askFirst(ctx, client)
					follows = err == nil
					return err
				})
				took := time.Since(start)
				if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) || follows != (test.want == "") {
					t.Errorf("follows: %v, error %v, want %q", follows, err, test.want)
				}
				if err != nil && exitcode.Of(err) != exitcode.Unavailable {
					t.Errorf("exit code %d", exitcode.Of(err))
				}
				if took < test.after || took > test.after+time.Second || asked.Load() > test.asked {
					t.Errorf("it took %v with %d requests, want %v with at most %d", took, asked.Load(), test.after, test.asked)
				}
			})
		})
	}
}

// asksForStore is a Locker that asks the backend whether there is a store.
type asksForStore struct {
	driver.Locker
	ask func(context.Context) error
}

func (s asksForStore) MissingStore(ctx context.Context) (string, error) { return "", s.ask(ctx) }
