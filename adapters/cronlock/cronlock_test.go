package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/cronlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func ExampleJobs_Func() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := cronlock.New(client, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	report, err := jobs.Func("report", func(ctx context.Context) { // for cron.AddFunc
		token, _ := holdfast.TokenFromContext(ctx)
		fmt.Println("the report runs under a fencing token:", token > 0)
	})
	if err != nil {
		log.Fatal(err)
	}
	report() // what cron does at the time of the job
	report() // skipped: the minimum hold is not over
	_ = client.Shutdown(ctx)
	// Output: the report runs under a fencing token: true
}

// Job stands for cron.Job, so that this example needs no other module.
type Job interface{ Run() }

type hello struct{}

func (hello) Run() { fmt.Println("hello") }

func ExampleWrapper() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := cronlock.New(client, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	wrapper, err := cronlock.Wrapper[Job](jobs, "hello") // Wrapper[cron.Job], for cron.NewChain
	if err != nil {
		log.Fatal(err)
	}
	wrapper(hello{}).Run()
	_ = client.Shutdown(ctx)
	// Output: hello
}

// A job has nobody to return an error to, so whatever skips it is reported, once. A lock that is held is no failure.
func TestSkippedRunsAreReported(t *testing.T) {
	failed := errors.New("no space left on device")
	for name, tc := range map[string]struct {
		refuse error
		want   int
	}{
		"denied":    {refuse: driver.Denied(failed), want: 1},
		"damaged":   {refuse: driver.Damaged(failed), want: 1},
		"invalid":   {refuse: driver.Invalid("index", "foreign", "ours"), want: 1},
		"transient": {refuse: failed, want: 1},
		"held":      {refuse: &driver.HeldError{}},
		"closed":    {refuse: driver.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, l driver.Lease) (fault locktest.Fault) {
					if op == locktest.OpAcquire {
						fault.Refuse = &driver.OpError{Op: op, Backend: "memory", Name: l.Name, Err: tc.refuse}
					}
					return fault
				})
				var ofClient, ofJobs locktest.Events
				client := locktest.NewClient(t, f, holdfast.WithObserver(ofClient.Observe))
				jobs, err := cronlock.New(client, time.Minute, holdfast.WithObserver(ofJobs.Observe))
				if err != nil {
					t.Fatal(err)
				}
				run, err := jobs.Func("report", func(context.Context) { t.Error("the job ran") })
				if err != nil {
					t.Fatal(err)
				}
				run()
				synctest.Wait()
				for whose, events := range map[string]*locktest.Events{"Client": &ofClient, "Jobs": &ofJobs} {
					e := events.First(holdfast.EventError)
					if n := events.Failures("acquire"); n != tc.want || n > 0 && (e.Name != "report" || e.Err == nil || e.Time.IsZero()) {
						t.Errorf("an observer of the %s: %d failures, want %d; the first: %+v", whose, n, tc.want, e)
					}
				}
			})
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	client := locktest.NewClient(t, memory.New())
	jobs, err := cronlock.New(client, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	type twoMethods interface {
		Job
		Stop()
	}
	long := strings.Repeat("x", 10_000)
	for what, err := range map[string]error{
		"nil client":      func() error { _, err := cronlock.New(nil, time.Second); return err }(),
		"no minimum hold": func() error { _, err := cronlock.New(client, 0); return err }(),
		"TTL":             func() error { _, err := cronlock.New(client, time.Second, holdfast.WithTTL(-1)); return err }(),
		"nil observer":    func() error { _, err := cronlock.New(client, time.Second, holdfast.WithObserver(nil)); return err }(),
		"nil function":    func() error { _, err := jobs.Func("x", nil); return err }(),
		"long name":       func() error { _, err := jobs.Func(long, func(context.Context) {}); return err }(),
		"nil Jobs":        func() error { _, err := cronlock.Wrapper[Job](nil, "x"); return err }(),
		"another Job":     func() error { _, err := cronlock.Wrapper[twoMethods](jobs, "x"); return err }(),
		"wrapper's name":  func() error { _, err := cronlock.Wrapper[Job](jobs, ""); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
