package timing

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// All randomness of the library comes from here: lease IDs, jitter, the order of attempts.

// replaced is the source of a simulation, where a seed decides every draw. It is nil in programs.
var replaced atomic.Pointer[seeded]

// seeded is a generator that many goroutines share.
type seeded struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// ReplaceRandom makes everything draw from rng until restore is called. Only one simulation of a process
// runs at a time.
func ReplaceRandom(rng *rand.Rand) (restore func()) {
	before := replaced.Swap(&seeded{rng: rng})
	return func() { replaced.Store(before) }
}

// RandomBytes fills b with bytes that nobody can guess.
func RandomBytes(b []byte) {
	if s := replaced.Load(); s != nil {
		s.fill(b)
		return
	}
	_, _ = cryptorand.Read(b) // never fails: crypto/rand ends the program instead
}

func (s *seeded) fill(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b {
		b[i] = byte(s.rng.Uint32())
	}
}

// RandomInt returns a number from 0 up to n, excluding n, which must be more than 0.
func RandomInt(n int) int {
	s := replaced.Load()
	if s == nil {
		return rand.IntN(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// RandomDuration returns a duration from 0 up to d, excluding d, which must be more than 0.
func RandomDuration(d time.Duration) time.Duration {
	s := replaced.Load()
	if s == nil {
		return rand.N(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(d)))
}

// randomFraction returns a number from 0 up to 1, excluding 1.
func randomFraction() float64 {
	s := replaced.Load()
	if s == nil {
		return rand.Float64()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Float64()
}

// Shuffle brings a slice into a random order.
func Shuffle[T any](list []T) {
	for i := len(list) - 1; i > 0; i-- {
		k := RandomInt(i + 1)
		list[i], list[k] = list[k], list[i]
	}
}
