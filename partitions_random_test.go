package holdfast_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Instances come, leave and die while calls fail, get lost, hang and land late, and
// functions are slow to stop: a partition is never at work twice, and when that is over,
// the work is spread evenly again.
func TestPartitionsRandomFaults(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { troubledFleet(t, seed) })
	}
}

func troubledFleet(t *testing.T, seed uint64) {
	t.Helper()
	var mu sync.Mutex
	rng, well := rand.New(rand.NewPCG(seed, 3)), false
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	faults := func(string, int, holdfast.Lease) fault {
		mu.Lock()
		defer mu.Unlock()
		ft := fault{delay: time.Duration(rng.IntN(50)) * time.Millisecond}
		if well {
			return ft
		}
		switch rng.IntN(40) {
		case 0:
			ft.hang = true
		case 1:
			ft.lose = errInjected
		case 2:
			ft.refuse = errInjected
		case 3:
			ft.late = time.Duration(rng.IntN(12)) * time.Second
		}
		return ft
	}
	f := newFleet(t, 1+roll(16))
	f.work = func(ctx context.Context, _ int) error {
		if roll(8) == 0 {
			return nil
		}
		<-ctx.Done()
		time.Sleep(time.Duration(roll(1000)) * time.Millisecond) // less than the grace
		return context.Cause(ctx)
	}
	without := []string{"", "watch", "batch", "lists"}[roll(4)]
	for range 25 {
		switch m := len(f.live); {
		case m == 0 || m < f.n && roll(3) == 0:
			f.join(func(s *severed) {
				wire := newFaulty(t, s.Locker, faults)
				wire.watcher = true
				s.Locker, s.without = wire, without
			})
		case roll(4) == 0:
			f.leave(f.live[roll(m)])
		case roll(4) == 0:
			in := f.live[roll(m)]
			f.kill(in)
			in.cancel()
		case roll(4) == 0:
			in := f.live[roll(m)]
			in.wire.cut.Store(true)
			time.Sleep(time.Duration(roll(15)) * time.Second)
			in.wire.cut.Store(false)
		}
		time.Sleep(time.Duration(roll(8000)) * time.Millisecond)
	}
	mu.Lock()
	well = true
	mu.Unlock()
	if len(f.live) == 0 {
		return
	}
	if took := f.settle(3 * time.Minute); took > time.Minute {
		t.Errorf("seed %d, without %q: even after %v", seed, without, took)
	}
	time.Sleep(time.Minute)
	before := f.ownership()
	f.moved()
	time.Sleep(5 * time.Minute)
	if m := f.moved(); m != 0 || !slices.EqualFunc(before, f.ownership(), slices.Equal) {
		t.Errorf("seed %d, without %q: %d moves when all was even", seed, without, m)
	}
	f.end()
}
