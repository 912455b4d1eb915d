//go:build unix

package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// goneLocker is a backend that has gone: after it has granted the lock, no call is answered before its own time limit is over,
// and with stuck not even then.
type goneLocker struct {
	driver.Locker
	stuck time.Duration
}

func (l *goneLocker) hang(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(l.stuck)
	return errUnreachable
}

func (l *goneLocker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	return driver.Lease{}, l.hang(ctx)
}

func (l *goneLocker) Release(ctx context.Context, _ driver.Lease) error { return l.hang(ctx) }

func (l *goneLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }

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
				start, locker := time.Now(), &goneLocker{memory.New(), test.stuck}
				client, err := holdfast.New(locker, holdfast.WithTTL(test.ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
					holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				run := &runner{runCmd: &runCmd{Name: "job"}, log: newLogger(&out, false, false), client: client, acquired: true}
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
