// Package castest makes the writes of a store fail as networks and client libraries make them fail. A driver that is built on
// package cas runs the conformance suite once more over its Store with lost answers:
//
//	New: func(t *testing.T) driver.Locker {
//		store := castest.Faulty(t, newStore(t), castest.LostAnswers(1))
//		l, err := cas.Open(t.Context(), store, config)
//		…
//	}
//
// [RunWatch] tests a Watch. A [Proxy] before the store's server loses, delays and doubles what a driver really sends.
//
// The other faults leave some outcomes unknown, which the suite does not expect. They are for tests in which clients compete:
// [Compete] checks that the lock stays exclusive meanwhile.
package castest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// ErrNoAnswer is what a write returns whose answer was lost: the outcome is unknown.
var ErrNoAnswer = errors.New("castest: no answer")

// Fault is what becomes of a write. The zero Fault does it and returns the store's answer.
type Fault struct {
	Unanswered bool          // the answer is lost, if the write was done
	Lost       bool          // it is not done, and there is no answer
	Late       time.Duration // it is done so long after Put has returned without an answer
	// Twice: it is sent twice, as by a client library that repeats requests. The second answer is returned, a conflict with the
	// first one.
	Twice bool
}

// lateLimit bounds a late write: the store may hang.
const lateLimit = 10 * time.Second

// Faulty returns a Store whose writes have the faults that next returns. Any goroutine calls next, once for each write. The test
// waits for late writes at its end, so it makes the Store before the Lockers.
func Faulty(tb testing.TB, store cas.Store, next func() Fault) cas.Store {
	s := &faulty{Store: store, next: next}
	tb.Cleanup(s.late.Wait)
	return s
}

// LostAnswers loses the answers of a third of the writes, by chance. Each call of a Locker still has its outcome: the Locker
// recognizes its own writes.
func LostAnswers(seed uint64) (next func() Fault) {
	draw := chance(seed)
	return func() Fault { return Fault{Unanswered: draw(3) == 0} }
}

// Random gives five of twelve writes all kinds of faults, by chance. Late writes come up to 4 s late.
func Random(seed uint64) (next func() Fault) {
	draw := chance(seed)
	return func() Fault {
		switch draw(12) {
		case 0:
			return Fault{Lost: true}
		case 1:
			return Fault{Unanswered: true}
		case 2, 3:
			return Fault{Late: time.Duration(1+draw(4000)) * time.Millisecond}
		case 4:
			return Fault{Twice: true}
		}
		return Fault{}
	}
}

// chance returns a source of numbers below n that any goroutine may call.
func chance(seed uint64) func(n int) int {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
}

type faulty struct {
	cas.Store
	next func() Fault
	late sync.WaitGroup
}

// Put implements [cas.Store].
func (s *faulty) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	fault := s.next()
	switch {
	case fault.Lost:
		return cas.Written{}, ErrNoAnswer
	case fault.Late > 0:
		s.late.Go(func() {
			time.Sleep(fault.Late)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
			defer cancel()
			_, _ = s.Store.Put(ctx, key, data, version) // nobody waits for the answer
		})
		return cas.Written{}, ErrNoAnswer
	case fault.Twice:
		_, _ = s.Store.Put(ctx, key, data, version) // the answer of the second is returned
	}
	w, err := s.Store.Put(ctx, key, data, version)
	if fault.Unanswered && err == nil {
		return cas.Written{}, ErrNoAnswer
	}
	return w, err
}
