package engine_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A driver that reports an unknown kind of wake-up has promised nothing by it: waiters and readers poll as without wake-ups, and the
// log names the field, the value and what is allowed.
func TestUnknownKindOfWakeup(t *testing.T) {
	for _, kind := range []driver.WakeupKind{driver.WakingEnded + 1, 255} {
		synctest.Test(t, func(t *testing.T) {
			out, logger := logOf(slog.LevelWarn)
			store := memory.NewStore()
			holder := locktest.NewClient(t, store.Locker())
			// It reports that waking is in effect, then the unknown kind, and nothing after that.
			c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method != driver.MethodWake {
					return next(ctx, call)
				}
				call.Wake(began)
				call.Wake(driver.Wakeup{Kind: kind})
				return driver.Answer{}
			}), logger)
			h := locktest.MustLock(t, holder, "job")
			o := observe(t, c, "job")
			locked := make(chan time.Time, 1)
			go func() {
				if _, err := c.Lock(t.Context(), "job"); err != nil {
					t.Error(err)
				}
				locked <- time.Now()
			}()
			time.Sleep(2 * time.Second)
			o.next()
			if err := h.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			released := time.Now()
			if late := (<-locked).Sub(released); late > 2*time.Second { // with wake-ups, it is up to 20 s
				t.Errorf("kind %d: the waiter acquired the lock %v after the release", kind, late)
			}
			time.Sleep(2 * time.Second)
			if seen := o.next(); len(seen) == 0 || seen[len(seen)-1].record.State != driver.StateHeld {
				t.Errorf("kind %d: 2 s after the change Observe has yielded %v", kind, seen)
			}
			wantLogged(t, out.Take(), `msg="holdfast: the driver reports an unknown kind of wake-up, polling" lock=job op=wake`,
				driver.Wakeup{Kind: kind}.Validate().Error()[len("holdfast: "):])
		})
	}
}
