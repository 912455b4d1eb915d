package leases_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// slowReply is a Locker whose answers to attempts come late.
type slowReply struct {
	*locktest.Faulty
	delay    atomic.Int64
	answered chan struct{} // has a value for each answer that is on its way
}

func (s *slowReply) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := s.Faulty.TryAcquire(ctx, req)
	if d := time.Duration(s.delay.Load()); d > 0 {
		s.answered <- struct{}{}
		time.Sleep(d)
	}
	return l, err
}

// The lock is released after an attempt was refused and before the reply is there: the
// Watcher's call is remembered, and the next attempt follows the reply.
func TestManagerWokenDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		holder := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher, f.NoBatchReads = true, true
		l := &slowReply{Faulty: f, answered: make(chan struct{}, 1)}
		m := locktest.NewManager(t, locktest.NewClient(t, l), holdfast.WithPollInterval(time.Minute))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		l.delay.Store(int64(time.Second))
		<-l.answered // of the next attempt, at the end of the holder's time as last seen
		l.delay.Store(0)
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if _, ok := m.Hold("job"); !ok {
			t.Error("not acquired after the reply")
		}
	})
}

// alarmist is a Watcher that calls for every name all the time.
type alarmist struct {
	mu    sync.Mutex
	wakes []func()
}

func (a *alarmist) Watch(_ string, wake func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakes = append(a.wakes, wake)
	return func() {}
}

func (a *alarmist) ring(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		a.mu.Lock()
		wakes := a.wakes
		a.mu.Unlock()
		for _, wake := range wakes {
			wake()
		}
	}
}

// alarmed is a Locker with that Watcher.
type alarmed struct {
	*locktest.Faulty
	watcher alarmist
}

func (a *alarmed) Capabilities() driver.Capabilities {
	capabilities := a.Faulty.Capabilities()
	capabilities.Watcher = &a.watcher
	return capabilities
}

// A backend that fails is left alone for the whole pause, however often the Watcher calls.
func TestManagerLeavesAFailingBackendAlone(t *testing.T) {
	for _, op := range []string{locktest.OpAcquire, locktest.OpInspect} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			var fails atomic.Bool
			f := locktest.NewFaulty(t, store.Locker(), func(failing string, _ int, _ holdfast.Lease) locktest.Fault {
				if fails.Load() && failing == op {
					return locktest.Fault{Refuse: locktest.ErrInjected, Delay: 20 * time.Millisecond} // the Watcher calls meanwhile, too
				}
				return locktest.Fault{}
			})
			f.NoBatchReads = op == locktest.OpAcquire
			l := &alarmed{Faulty: f}
			m := locktest.NewManager(t, locktest.NewClient(t, l), holdfast.WithPollInterval(time.Minute))
			locktest.MustAdd(t, m, "job")
			synctest.Wait()
			fails.Store(true)
			l.watcher.ring(20 * time.Second) // pauses of up to 5 s
			if n := f.Count(locktest.OpAcquire) + f.Count(locktest.OpInspect); n < 4 || n > 40 {
				t.Errorf("%s fails: %d calls in 20 s", op, n)
			} else {
				t.Logf("%s fails: %d calls in 20 s", op, n)
			}
		})
	}
}
