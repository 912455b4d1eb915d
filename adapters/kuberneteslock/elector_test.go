package kuberneteslock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// leaders records who leads when.
type leaders struct {
	mu      sync.Mutex
	leading map[string]bool
	began   []string // identities in order
	overlap bool
}

func (l *leaders) begin(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overlap = l.overlap || len(l.leading) > 0
	l.leading[identity] = true
	l.began = append(l.began, identity)
}

func (l *leaders) end(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leading, identity)
}

func (l *leaders) last() (identity string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.began) == 0 {
		return "", 0
	}
	return l.began[len(l.began)-1], len(l.began)
}

// elect runs client-go's elector with its default times until stop is called. done is closed
// when Run has returned.
func (l *leaders) elect(t *testing.T, lock *Lock, release bool) (stop context.CancelFunc, done chan struct{}) {
	t.Helper()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { l.begin(lock.Identity()) },
			OnStoppedLeading: func() { l.end(lock.Identity()) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done = make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	return cancel, done
}

// election is two electors on one backend.
type election struct {
	leaders
	store   *memory.Store
	wires   [2]*wire
	lockers [2]*faulty
	locks   [2]*Lock
	stop    [2]context.CancelFunc
	done    [2]chan struct{}
}

func newElection(t *testing.T, release bool) *election {
	t.Helper()
	e := &election{leaders: leaders{leading: map[string]bool{}}, store: memory.NewStore()}
	for i, identity := range []string{"a", "b"} {
		e.wires[i] = &wire{}
		e.lockers[i] = &faulty{Locker: driver.Intercept(e.store.Locker(), e.wires[i].call)}
		e.locks[i] = newLock(t, e.lockers[i], identity)
		e.stop[i], e.done[i] = e.elect(t, e.locks[i], release)
	}
	return e
}

// end stops all electors. A bubble ends with its goroutines.
func (e *election) end() {
	for i := range e.stop {
		e.stop[i]()
		<-e.done[i]
	}
}

// leader waits until the n-th leadership began, and returns the leader's number.
func (e *election) leader(t *testing.T, n int) int {
	t.Helper()
	for range 10 * 60 {
		if identity, now := e.last(); now >= n {
			if identity == "a" {
				return 0
			}
			return 1
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("no leadership %d within a minute", n)
	return 0
}

// A leader leads for long, and a crash leads to another when the lease has ended.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, false)
		defer e.end()
		first := e.leader(t, 1)
		time.Sleep(10 * time.Minute)
		if _, n := e.last(); n != 1 {
			t.Fatalf("%d leaderships in ten minutes", n)
		}
		token := e.locks[first].Token()
		crashed := time.Now()
		e.lockers[first].set(func(f *faulty) { f.renewed = errors.New("this process is gone") })
		second := e.leader(t, 2)
		// The last renewal was up to one RetryPeriod before; RetryPeriod is jittered by 1.2.
		if waited := time.Since(crashed); second == first || waited < 12*time.Second || waited > 21*time.Second {
			t.Errorf("elector %d leads after %d, %v after the crash", second, first, waited)
		}
		if e.overlap {
			t.Error("two led at once")
		}
		if e.locks[second].Token() <= token {
			t.Errorf("token %d after %d", e.locks[second].Token(), token)
		}
	})
}

// With ReleaseOnCancel the other leads at its next attempt.
func TestReleaseOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, true)
		defer e.end()
		first := e.leader(t, 1)
		time.Sleep(time.Minute)
		began := time.Now()
		e.stop[first]()
		<-e.done[first]
		if second := e.leader(t, 2); second == first || time.Since(began) > 5*time.Second || e.overlap {
			t.Errorf("elector %d leads after %d, after %v; overlap: %t", second, first, time.Since(began), e.overlap)
		}
		if e.locks[first].Token() != 0 {
			t.Error("the lock that was released has a token")
		}
	})
}

// A release whose answer was lost arrives late. The Lock that sent it campaigns again in a new
// elector, and does not lead with the lease that the release ends.
func TestLateRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, true)
		defer e.end()
		first := e.leader(t, 1)
		e.lockers[first].set(func(f *faulty) { f.arrives = 3 * time.Second })
		e.stop[first]()
		<-e.done[first]
		e.lockers[first].set(func(f *faulty) { f.arrives = 0 })
		e.stop[first], e.done[first] = e.elect(t, e.locks[first], true)
		e.leader(t, 2)
		time.Sleep(time.Minute)
		if _, n := e.last(); e.overlap || n != 2 {
			t.Errorf("%d leaderships; overlap: %t", n, e.overlap)
		}
	})
}

// A loss ends the leadership, also if the lease is free again when the elector asks.
func TestElectorLoss(t *testing.T) {
	for what, act := range map[string]func(driver.Breaker, context.Context) error{
		"broken": func(b driver.Breaker, ctx context.Context) error {
			return b.Break(ctx, "operator", driver.BreakAnybody())
		},
		"broken now": func(b driver.Breaker, ctx context.Context) error {
			return b.BreakNow(ctx, "operator", driver.BreakAnybody())
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t, true)
				defer e.end()
				first := e.leader(t, 1)
				e.stop[1-first]() // nobody else takes the lease
				<-e.done[1-first]
				if err := act(e.store.Locker().Capabilities().Breaker, t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				<-e.done[first] // OnStoppedLeading was called
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("the elector stopped after %v", took)
				}
				if _, n := e.last(); n != 1 || len(e.leading) != 0 {
					t.Errorf("%d leaderships; leading: %v", n, e.leading)
				}
			})
		})
	}
}

// A backend that fails for a while costs no leadership; one that fails for longer ends it before
// another can lead.
func TestElectorBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, false)
		defer e.end()
		first := e.leader(t, 1)
		for range 5 {
			e.lockers[first].set(func(f *faulty) { f.renewed = errors.New("no answer") })
			time.Sleep(7 * time.Second)
			e.lockers[first].set(func(f *faulty) { f.renewed = nil })
			time.Sleep(10 * time.Second)
		}
		if _, n := e.last(); n != 1 {
			t.Errorf("%d leaderships after short failures", n)
		}
		e.lockers[first].set(func(f *faulty) { f.renewed = errors.New("no answer") })
		if second := e.leader(t, 2); second == first || e.overlap {
			t.Errorf("elector %d leads after %d; overlap: %t", second, first, e.overlap)
		}
	})
}
