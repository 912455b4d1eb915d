package leases

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// unreleasable is a Locker whose releases fail.
type unreleasable struct {
	*memory.Locker
	failed atomic.Bool
}

func (u *unreleasable) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func (u *unreleasable) Release(context.Context, driver.Lease) error {
	u.failed.Store(true)
	return errors.New("no answer")
}

// Shutdown gives up between a failed release, which still had time for another attempt, and the plan of
// that attempt. It is made at once then: nobody waits for its backoff.
func TestRetryThatShutdownHasNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := &unreleasable{Locker: memory.New()}
		ctx, giveUp := context.WithCancel(t.Context())
		shut := make(chan error, 1)
		start, once := time.Now(), atomic.Bool{}
		client, err := holdfast.New(locker, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(time.Hour),
			holdfast.WithElapsed(func() time.Duration {
				// TryRelease reads the clock after it has seen that Shutdown has not given up.
				if locker.failed.Load() && strings.Contains(string(debug.Stack()), ").TryRelease(") && once.CompareAndSwap(false, true) {
					giveUp()
					if err := <-shut; !errors.Is(err, context.Canceled) {
						t.Errorf("Shutdown returned %v", err)
					}
				}
				return time.Since(start)
			}))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(client)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Add("job"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go func() { shut <- client.Shutdown(ctx) }()
		synctest.Wait()
		select {
		case <-m.drained:
		default:
			t.Error("the next attempt waits for its backoff")
		}
		if !once.Load() {
			t.Error("no release was tried")
		}
		time.Sleep(time.Minute) // all goroutines end
	})
}
