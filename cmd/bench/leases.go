package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/leases"
)

// LeaseCost is the cost of holding leases.
type LeaseCost struct {
	Leases     int     `json:"leases"`
	TTL        float64 `json:"ttlMs"`
	Acquiring  float64 `json:"acquiringMs"` // all of them
	Holding    float64 `json:"holdingMs"`   // how long the following was measured
	Releasing  float64 `json:"releasingMs"`
	Lost       int     `json:"lost"`
	Calls      float64 `json:"callsPerSecond"`
	OneByOne   float64 `json:"oneByOneCallsPerSecond"` // without batches: one call for each lease every third of the TTL
	CPU        float64 `json:"cpuPercent"`             // of one processor, this process only
	Bytes      float64 `json:"bytesPerLease"`          // heap and stacks
	Goroutines int     `json:"goroutines"`             // in addition to those before
}

// HoldLeases measures a [leases.LeaseManager] that acquires n locks, holds them for d and releases
// them.
func HoldLeases(ctx context.Context, b *Backend, prefix string, n int, ttl, d time.Duration) (_ LeaseCost, err error) {
	client, err := b.Client(ctx, holdfast.WithTTL(ttl))
	if err != nil {
		return LeaseCost{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout+time.Duration(n)*10*time.Millisecond)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()
	manager, err := leases.New(client)
	if err != nil {
		return LeaseCost{}, err
	}
	set := newLeases(manager, prefix, n)
	// What the client allocates once is not counted as a cost of the leases.
	if err := set.acquire(ctx, min(n, 50)); err != nil {
		return LeaseCost{}, err
	}
	if err := manager.Remove(ctx, set.names...); err != nil {
		return LeaseCost{}, err
	}

	out := LeaseCost{Leases: n, TTL: ms(ttl), OneByOne: float64(n) / (ttl.Seconds() / 3)}
	goroutines := runtime.NumGoroutine()
	bytes, err := minMemory(ctx)
	if err != nil {
		return LeaseCost{}, err
	}
	begin := time.Now()
	if err := set.acquire(ctx, n); err != nil {
		return LeaseCost{}, err
	}
	out.Acquiring = ms(time.Since(begin))
	set.noteTokens()

	calls, cpu, begin := b.Calls(), processCPU(), time.Now()
	if err := sleep(ctx, d); err != nil {
		return LeaseCost{}, err
	}
	took := time.Since(begin)
	out.Holding = ms(took)
	out.Calls = float64(b.Calls()-calls) / took.Seconds()
	out.CPU = 100 * (processCPU() - cpu).Seconds() / took.Seconds()
	out.Goroutines = max(runtime.NumGoroutine()-goroutines, 0)
	after, err := minMemory(ctx)
	if err != nil {
		return LeaseCost{}, err
	}
	out.Bytes = max(float64(after-bytes), 0) / float64(n)
	out.Lost = set.lost()

	begin = time.Now()
	err = manager.Remove(ctx, set.names...)
	out.Releasing = ms(time.Since(begin))
	return out, err
}

// managedLeases are the names of a manager, and their tokens as noted after the acquisition.
type managedLeases struct {
	manager *leases.LeaseManager
	names   []string
	tokens  []uint64
}

func newLeases(manager *leases.LeaseManager, prefix string, n int) *managedLeases {
	s := &managedLeases{manager, make([]string, n), make([]uint64, n)}
	for i := range s.names {
		s.names[i] = fmt.Sprint(prefix, "lease-", i)
	}
	return s
}

// acquire adds the first n names to the manager and waits until all are held.
func (s *managedLeases) acquire(ctx context.Context, n int) error {
	if err := s.manager.Add(s.names[:n]...); err != nil {
		return err
	}
	for i := 0; i < n; {
		if _, held := s.manager.Hold(s.names[i]); held {
			i++
		} else if err := sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d leases were acquired: %w", len(s.manager.Leases()), n, err)
		}
	}
	return nil
}

func (s *managedLeases) noteTokens() {
	for i, name := range s.names {
		s.tokens[i] = s.token(name)
	}
}

// lost returns the number of leases that are not held with the noted token. One that was acquired
// again after a loss has another token.
func (s *managedLeases) lost() (n int) {
	for i, name := range s.names {
		if token := s.token(name); token == 0 || token != s.tokens[i] {
			n++
		}
	}
	return n
}

// token returns 0 if the name is not held.
func (s *managedLeases) token(name string) uint64 {
	if h, held := s.manager.Hold(name); held && h.Err() == nil {
		return h.Token()
	}
	return 0
}

// minMemory returns the minimum of memory within a second, which excludes what calls in progress
// need for a moment.
func minMemory(ctx context.Context) (int64, error) {
	least := memory()
	for range 4 {
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return 0, err
		}
		least = min(least, memory())
	}
	return least, nil
}

// memory returns the size of the program's live objects and stacks, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC() // frees what the first one has only finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
