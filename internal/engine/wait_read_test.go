package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// hinted is a Locker whose waiter the test wakes.
type hinted struct {
	*locktest.Faulty
	locktest.Unordered
	wake chan func(driver.Wakeup)
}

func (l hinted) Capabilities() driver.Capabilities {
	a := l.Faulty.Capabilities()
	a.Waker, a.Queue = l, l
	return a
}

func (l hinted) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	select {
	case l.wake <- wake:
	default: // the end of a wait, or of a position
	}
	return func() {}
}

// A turn that comes while a read is under way, or at the moment of its answer, is kept: what the read
// has shown, a holder with an hour left, does not plan another time.
func TestReadDoesNotReplaceATurn(t *testing.T) {
	const readTime, turn = 10 * time.Millisecond, 2 * driver.TurnLength
	for _, after := range []time.Duration{readTime / 2, readTime} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job", holdfast.WithTTL(time.Hour))
			asked := newTimes()
			f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) (fault locktest.Fault) {
				switch op {
				case locktest.OpInspect:
					fault.Delay = readTime
				case locktest.OpAcquire:
					asked.note()
				}
				return fault
			})
			l := hinted{Faulty: f, wake: make(chan func(driver.Wakeup), 1)}
			c := locktest.NewClient(t, l)
			for round := range 50 { // which comes first at the same moment is up to the scheduler
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = c.Lock(ctx, "job", holdfast.WithPollInterval(time.Hour))
				}()
				wake := <-l.wake
				synctest.Wait()
				reads := f.Count(locktest.OpInspect)
				wake(began)
				time.Sleep(after)
				if f.Count(locktest.OpInspect) == reads {
					t.Fatal("no read is under way")
				}
				before := len(asked.all())
				hint := time.Since(asked.start)
				wake(driver.Wakeup{After: turn})
				time.Sleep(turn + time.Millisecond)
				synctest.Wait()
				if got := asked.all()[before:]; len(got) != 1 || (got[0]-hint-turn).Abs() > time.Millisecond {
					t.Errorf("round %d, a hint %v after the read began: requests at %v, want one at %v", round, after, got, hint+turn)
				}
				cancel()
				<-ended
				select {
				case <-l.wake:
				default:
				}
			}
		})
	}
}
