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

// Held is what holding leases costs.
type Held struct {
	Leases     int     `json:"leases"`
	TTL        float64 `json:"ttlMs"`
	Acquiring  float64 `json:"acquiringMs"` // of all of them
	Holding    float64 `json:"holdingMs"`   // how long the rest was measured
	Releasing  float64 `json:"releasingMs"`
	Lost       int     `json:"lost"`
	Calls      float64 `json:"callsPerSecond"`
	OneByOne   float64 `json:"oneByOneCallsPerSecond"` // a call a lease every third of the TTL
	CPU        float64 `json:"cpuPercent"`             // of one processor, this process only
	Bytes      float64 `json:"bytesPerLease"`          // heap and stacks
	Goroutines int     `json:"goroutines"`             // more than before
}

// Hold has a [leases.LeaseManager] take n locks, hold them for a while and release
// them.
func Hold(ctx context.Context, b *Backend, prefix string, n int, ttl, d time.Duration) (_ Held, err error) {
	client, err := b.Client(ctx, holdfast.WithTTL(ttl))
	if err != nil {
		return Held{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning+time.Duration(n)*10*time.Millisecond)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()
	manager, err := leases.New(client)
	if err != nil {
		return Held{}, err
	}
	set := newLeases(manager, prefix, n)
	// What the client makes once for all leases is none of theirs.
	if err := set.hold(ctx, min(n, 50)); err != nil {
		return Held{}, err
	}
	if err := manager.Remove(ctx, set.names...); err != nil {
		return Held{}, err
	}

	out := Held{Leases: n, TTL: ms(ttl), OneByOne: float64(n) / (ttl.Seconds() / 3)}
	goroutines := runtime.NumGoroutine()
	bytes, err := quietMemory(ctx)
	if err != nil {
		return Held{}, err
	}
	begin := time.Now()
	if err := set.hold(ctx, n); err != nil {
		return Held{}, err
	}
	out.Acquiring = ms(time.Since(begin))
	set.note()

	calls, cpu, begin := b.Calls(), processCPU(), time.Now()
	if err := sleep(ctx, d); err != nil {
		return Held{}, err
	}
	took := time.Since(begin)
	out.Holding = ms(took)
	out.Calls = float64(b.Calls()-calls) / took.Seconds()
	out.CPU = 100 * (processCPU() - cpu).Seconds() / took.Seconds()
	out.Goroutines = max(runtime.NumGoroutine()-goroutines, 0)
	after, err := quietMemory(ctx)
	if err != nil {
		return Held{}, err
	}
	out.Bytes = max(float64(after-bytes), 0) / float64(n)
	out.Lost = set.lost()

	begin = time.Now()
	err = manager.Remove(ctx, set.names...)
	out.Releasing = ms(time.Since(begin))
	return out, err
}

// managed is the names of a manager, and their tokens as first noted.
type managed struct {
	manager *leases.LeaseManager
	names   []string
	tokens  []uint64
}

func newLeases(manager *leases.LeaseManager, prefix string, n int) *managed {
	s := &managed{manager, make([]string, n), make([]uint64, n)}
	for i := range s.names {
		s.names[i] = fmt.Sprint(prefix, "lease-", i)
	}
	return s
}

// hold has the first n names managed and waits until all are held.
func (s *managed) hold(ctx context.Context, n int) error {
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

func (s *managed) note() {
	for i, name := range s.names {
		s.tokens[i] = s.token(name)
	}
}

// lost counts the leases that are not the ones noted: one that was acquired again has
// another token.
func (s *managed) lost() (n int) {
	for i, name := range s.names {
		if token := s.token(name); token == 0 || token != s.tokens[i] {
			n++
		}
	}
	return n
}

func (s *managed) token(name string) uint64 {
	if h, held := s.manager.Hold(name); held && h.Err() == nil {
		return h.Token()
	}
	return 0
}

// quietMemory is the least of what memory tells within a second: what calls under way
// need for a moment is no lease's.
func quietMemory(ctx context.Context) (int64, error) {
	least := memory()
	for range 4 {
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return 0, err
		}
		least = min(least, memory())
	}
	return least, nil
}

// memory is what the program's live objects and stacks take, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what the first one only has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
