package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
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

// acquiringAtOnce bounds how many locks are asked for at a time.
const acquiringAtOnce = 16

// Hold takes n locks with one client, holds them for a while and releases them.
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
	if err := warmUp(ctx, client, prefix); err != nil {
		return Held{}, err
	}
	out := Held{Leases: n, TTL: ms(ttl), OneByOne: float64(n) / (ttl.Seconds() / 3)}
	goroutines, bytes := runtime.NumGoroutine(), memory()
	begin := time.Now()
	holds, err := lockAll(ctx, client, prefix, n)
	if err != nil {
		return Held{}, err
	}
	out.Acquiring = ms(time.Since(begin))

	calls, cpu, begin := b.Calls(), processCPU(), time.Now()
	if err := sleep(ctx, d); err != nil {
		return Held{}, err
	}
	took := time.Since(begin)
	out.Holding = ms(took)
	out.Calls = float64(b.Calls()-calls) / took.Seconds()
	out.CPU = 100 * (processCPU() - cpu).Seconds() / took.Seconds()
	out.Bytes = max(float64(memory()-bytes), 0) / float64(n)
	out.Goroutines = max(runtime.NumGoroutine()-goroutines, 0)
	for _, h := range holds {
		if h.Err() != nil {
			out.Lost++
		}
	}
	begin = time.Now()
	err = each(len(holds), func(i int) error { return holds[i].Release(ctx) })
	out.Releasing = ms(time.Since(begin))
	return out, err
}

// warmUp has the client make what it has for all leases together.
func warmUp(ctx context.Context, client *holdfast.Client, prefix string) error {
	return each(acquiringAtOnce, func(i int) error {
		h, err := client.TryLock(ctx, fmt.Sprint(prefix, "warm-", i))
		if err != nil {
			return err
		}
		return h.Release(ctx)
	})
}

func lockAll(ctx context.Context, client *holdfast.Client, prefix string, n int) ([]*holdfast.Hold, error) {
	holds := make([]*holdfast.Hold, n)
	return holds, each(n, func(i int) (err error) {
		holds[i], err = client.TryLock(ctx, fmt.Sprint(prefix, "lease-", i))
		return err
	})
}

// each calls do for 0 to n-1, a few at a time, up to the first error.
func each(n int, do func(i int) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		next  int
		first error
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	for range min(n, acquiringAtOnce) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}

// memory is what the program's live objects and stacks take, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what the first one only has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
