//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"iter"
	"log/slog"
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

// goneLocker is a backend that has gone: after it has granted the lock, no call is answered before its own time limit is over,
// and with stuck not even then. Reads and requests for the lock are answered until gone is set.
type goneLocker struct {
	driver.Locker
	stuck time.Duration
	gone  atomic.Bool
}

func (l *goneLocker) hang(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(l.stuck)
	return errUnreachable
}

func (l *goneLocker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if l.gone.Load() {
		return driver.Lease{}, l.hang(ctx)
	}
	return l.Locker.TryAcquire(ctx, req)
}

func (l *goneLocker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if l.gone.Load() {
		return driver.Record{}, l.hang(ctx)
	}
	return l.Locker.Inspect(ctx, name)
}

func (l *goneLocker) List(ctx context.Context, _ string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, l.hang(ctx)) }
}

func (l *goneLocker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	return driver.Lease{}, l.hang(ctx)
}

func (l *goneLocker) Release(ctx context.Context, _ driver.Lease) error { return l.hang(ctx) }

func (l *goneLocker) Capabilities() driver.Capabilities { return driver.Capabilities{Lister: l} }

func (l *goneLocker) Close(ctx context.Context) error { return l.hang(ctx) }

// Release and shutdown share one time limit when the backend is gone: service managers and manifests count on it. After a loss
// the lease's end is the limit, since nothing is left to release.
func TestTheEndHasOneTimeLimit(t *testing.T) {
	const reserve = 500 * time.Millisecond // for the goroutines between the steps, in virtual time
	for name, test := range map[string]struct {
		ttl, stuck time.Duration
		until      time.Duration // when the command ends, after the acquisition
		most       time.Duration // from then on
	}{
		"held":                         {10 * time.Minute, 0, time.Second, shutdownTimeout},
		"held, and calls hang":         {10 * time.Minute, time.Minute, time.Second, shutdownTimeout},
		"lost and expired":             {30 * time.Second, 0, 31 * time.Second, 2 * idleShutdownTimeout},
		"lost, expired, calls hang":    {30 * time.Second, time.Minute, 31 * time.Second, 2 * idleShutdownTimeout},
		"lost, 2s before the expiry":   {30 * time.Second, 0, 28 * time.Second, 2*time.Second + 2*idleShutdownTimeout},
		"lost, long before the expiry": {10 * time.Minute, 0, 505 * time.Second, shutdownTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, locker := time.Now(), &goneLocker{Locker: memory.New(), stuck: test.stuck}
				client, err := holdfast.New(locker, holdfast.WithTTL(test.ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
					holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				run := &runner{runCmd: &runCmd{Name: "job"}, log: messages.NewLog(&out, false, false), client: client, acquired: true}
				hold, err := client.Lock(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.until)
				begin := time.Now()
				run.release(hold)
				run.close()
				if took := time.Since(begin); took > test.most+reserve {
					t.Errorf("the end took %v, allowed are %v", took, test.most)
				}
				expired := hold.ExpiresIn() <= 0
				if says := strings.Contains(out.String(), `could not release "job"`); says == expired {
					t.Errorf("expired: %v; messages: %s", expired, out.String())
				}
				time.Sleep(10 * time.Minute) // what was given up ends with the process; here it must end before the test
			})
		})
	}
}

// A signal ends what waits or follows within the same time limit, whatever the backend does.
func TestASignalEndsEveryCommandInTime(t *testing.T) {
	const reserve = 500 * time.Millisecond
	elect := func(ttl time.Duration) func(*app) func(context.Context, *holdfast.Client) error {
		return func(a *app) func(context.Context, *holdfast.Client) error {
			e := &electCmd{Name: "job", TTL: ttl}
			return func(ctx context.Context, client *holdfast.Client) error { return e.takePart(ctx, a, client) }
		}
	}
	watch := func(names ...string) func(*app) func(context.Context, *holdfast.Client) error {
		return func(a *app) func(context.Context, *holdfast.Client) error {
			c := &watchCmd{Names: names, Every: 2 * time.Second}
			return func(ctx context.Context, client *holdfast.Client) error { return c.follow(ctx, a, client) }
		}
	}
	for name, test := range map[string]struct {
		stuck     time.Duration
		stuckOpen time.Duration
		follow    func(*app) func(context.Context, *holdfast.Client) error
	}{
		"elect":                               {follow: elect(0)},
		"elect, a long TTL":                   {follow: elect(10 * time.Minute)},
		"elect, calls hang":                   {stuck: time.Minute, follow: elect(0)},
		"elect, a long TTL, calls hang":       {stuck: time.Minute, follow: elect(10 * time.Minute)},
		"watch of a name":                     {follow: watch("job")},
		"watch of a name, calls hang":         {stuck: time.Minute, follow: watch("job")},
		"watch of all names":                  {follow: watch()},
		"watch of all names, calls hang":      {stuck: time.Minute, follow: watch()},
		"watch, opening the backend hangs":    {stuckOpen: time.Minute, follow: watch("job")},
		"elect, opening the backend is stuck": {stuckOpen: time.Minute, follow: elect(0)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locker := &goneLocker{Locker: memory.New(), stuck: test.stuck}
				a := &app{log: messages.NewLog(io.Discard, false, false), stdout: io.Discard, backend: "mem:"}
				open := func(ctx context.Context, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
					if test.stuckOpen > 0 {
						<-ctx.Done()
						time.Sleep(test.stuckOpen)
						return nil, ctx.Err()
					}
					return holdfast.New(locker, append(opts, bubbleOptions()...)...)
				}
				caught := &signals.Caught{C: make(chan os.Signal, 1)}
				ended := make(chan error, 1)
				go func() { ended <- a.followUntil(caught, open, test.follow(a)) }()
				time.Sleep(time.Second)
				locker.gone.Store(true)
				time.Sleep(6 * time.Second)
				caught.C <- syscall.SIGTERM
				begin := time.Now()
				err := <-ended
				if took := time.Since(begin); took > shutdownTimeout+reserve || err != nil {
					t.Errorf("the end took %v, allowed are %v: %v", took, shutdownTimeout, err)
				}
				time.Sleep(time.Hour) // what was given up ends with the process; here it must end before the test
			})
		})
	}
}

// bubbleOptions are those of a Client in virtual time.
func bubbleOptions() []holdfast.ClientOption {
	start := time.Now()
	return []holdfast.ClientOption{holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) })}
}

// grantsLate grants the lock long after the caller has given up, and is gone then.
type grantsLate struct {
	*goneLocker
	after time.Duration
}

func (l grantsLate) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	<-ctx.Done()
	time.Sleep(l.after)
	return l.Locker.TryAcquire(context.WithoutCancel(ctx), req)
}

// The same of a command that waits for the lock: "run", "lock" and "data set".
func TestASignalEndsAWaitInTime(t *testing.T) {
	const reserve = 500 * time.Millisecond
	gone := func(stuck time.Duration) *goneLocker {
		l := &goneLocker{Locker: memory.New(), stuck: stuck}
		l.gone.Store(true)
		return l
	}
	for name, locker := range map[string]driver.Locker{
		"gone":              gone(0),
		"calls hang":        gone(time.Minute),
		"granted late":      grantsLate{gone(0), 8 * time.Second},
		"granted far later": grantsLate{gone(time.Minute), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := holdfast.New(locker, append(bubbleOptions(), holdfast.WithTTL(10*time.Minute))...)
				if err != nil {
					t.Fatal(err)
				}
				run := &runner{runCmd: &runCmd{Name: "job"}, log: messages.NewLog(io.Discard, false, false), client: client, events: &eventLogger{},
					signals: signals.Caught{C: make(chan os.Signal, 1)}, waitStart: time.Now()}
				time.AfterFunc(time.Second, func() { run.signals.C <- syscall.SIGTERM })
				begin := time.Now().Add(time.Second)
				_, err = run.acquire()
				run.close()
				if took := time.Since(begin); took > shutdownTimeout+reserve || exitcode.Of(err) != signals.Code(syscall.SIGTERM) {
					t.Errorf("the end took %v, allowed are %v: %v", took, shutdownTimeout, err)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}
