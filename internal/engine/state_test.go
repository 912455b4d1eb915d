package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// stateful numbers the answers for each lease, and notes which number each request carries.
type stateful struct {
	mu     sync.Mutex
	states map[driver.LeaseID]int
	calls  []string
	lose   atomic.Bool // the answers of renewals get lost
}

func (s *stateful) note(method driver.Method, l driver.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s of %d", method, l.State.Content(), s.states[l.ID]))
}

func (s *stateful) answer(l *driver.Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.states[l.ID]++
		l.State = driver.NewLeaseState(fmt.Sprint(s.states[l.ID]))
	}
}

// taken returns the calls since the last time.
func (s *stateful) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}

func (s *stateful) intercept(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	switch call.Method {
	case driver.MethodRenew, driver.MethodRelease, driver.MethodWriteData:
		s.note(call.Method, call.Lease)
	case driver.MethodRenewBatch, driver.MethodReleaseBatch:
		for _, l := range call.Leases {
			s.note(call.Method, l)
		}
	}
	a := next(ctx, call)
	switch call.Method {
	case driver.MethodTryAcquire:
		s.answer(&a.Lease, a.Err)
	case driver.MethodRenew:
		s.answer(&a.Lease, a.Err)
		if s.lose.Load() {
			a = driver.Answer{Err: errors.New("no answer")}
		}
	case driver.MethodRenewBatch:
		a.Leases = append([]driver.Lease(nil), a.Leases...)
		for i := range a.Leases {
			s.answer(&a.Leases[i], a.Errs[i])
		}
	}
	return a
}

// Each request of a lease carries the State of the latest answer for it.
func TestLeaseStateIsCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stateful{states: map[driver.LeaseID]int{}}
		c := locktest.NewClient(t, driver.Intercept(memory.New(), s.intercept), holdfast.WithTTL(30*time.Second),
			holdfast.WithRenewEvery(10*time.Second))
		expect := func(what, want string) {
			t.Helper()
			if got := s.taken(); got != want {
				t.Errorf("%s: %s; want %s", what, got, want)
			}
		}
		a := locktest.MustLock(t, c, "a")
		if got := a.Lease().State.Content(); got != "1" {
			t.Errorf("the lease has State %s", got)
		}
		time.Sleep(25 * time.Second)
		expect("two renewals", "Renew 1 of 1, Renew 2 of 2")
		if err := a.WriteData(t.Context(), []byte("x")); err != nil {
			t.Error(err)
		}
		expect("a write", "WriteData 3 of 3")
		if got := a.Lease().State.Content(); got != "3" {
			t.Errorf("the lease has State %s", got)
		}
		s.lose.Store(true)
		time.Sleep(6 * time.Second)
		s.lose.Store(false)
		time.Sleep(5 * time.Second)
		got := s.taken()
		if !strings.HasPrefix(got, "Renew 3 of 3, Renew 3 of 4") {
			t.Errorf("after lost answers: %s", got)
		}
		next := make(chan *holdfast.Hold)
		go func() { next <- locktest.MustLock(t, c, "a") }()
		synctest.Wait()
		last := a.Lease().State.Content()
		locktest.Release(t, a)
		a = <-next
		if got := s.taken(); !strings.HasPrefix(got, "Release "+last+" of ") {
			t.Errorf("the release to a waiter: %s; the State was %s", got, last)
		}
		locktest.Release(t, a)
		expect("a release", "Release 1 of 1")
	})
}

// Batches of renewals and releases carry the State, too.
func TestLeaseStateInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stateful{states: map[driver.LeaseID]int{}}
		c := locktest.NewClient(t, driver.Intercept(memory.New(), s.intercept), holdfast.WithTTL(30*time.Second),
			holdfast.WithRenewEvery(10*time.Second))
		first, other := locktest.MustLock(t, c, "a"), locktest.MustLock(t, c, "b")
		for round := range 3 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			want := fmt.Sprintf("RenewBatch %[1]d of %[1]d, RenewBatch %[1]d of %[1]d", round+1)
			if got := s.taken(); got != want {
				t.Errorf("round %d: %s, want %s", round, got, want)
			}
		}
		if first.Err() != nil || other.Err() != nil {
			t.Error(first.Err(), other.Err())
		}
		locktest.ShutDown(t, c)
		if got := strings.ReplaceAll(s.taken(), "Batch", ""); got != "Release 4 of 4, Release 4 of 4" {
			t.Errorf("Shutdown: %s", got)
		}
	})
}
