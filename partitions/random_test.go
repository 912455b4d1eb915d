package partitions_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Instances join, leave and die while calls fail, hang, land late and lose their replies, and functions
// are slow to stop. A partition is never at work twice, and when the faults end, the work is spread
// evenly again.
func TestPartitionsRandomFaults(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { faultyFleet(t, seed) })
	}
}

func faultyFleet(t *testing.T, seed uint64) {
	t.Helper()
	var mu sync.Mutex
	rng, well := rand.New(rand.NewPCG(seed, 3)), false
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	faults := func(string, int, holdfast.Lease) locktest.Fault {
		mu.Lock()
		defer mu.Unlock()
		ft := locktest.Fault{Delay: time.Duration(rng.IntN(50)) * time.Millisecond}
		if well {
			return ft
		}
		switch rng.IntN(40) {
		case 0:
			ft.Hang = true
		case 1:
			ft.Lose = locktest.ErrInjected
		case 2:
			ft.Refuse = locktest.ErrInjected
		case 3:
			ft.Late = time.Duration(rng.IntN(12)) * time.Second
		}
		return ft
	}
	f := locktest.NewFleet(t, 1+roll(16))
	f.Work = func(ctx context.Context, _ int) error {
		if roll(8) == 0 {
			return nil
		}
		<-ctx.Done()
		time.Sleep(time.Duration(roll(1000)) * time.Millisecond) // less than the grace
		return context.Cause(ctx)
	}
	without := []string{"", "watch", "batch", "lists"}[roll(4)]
	for range 25 {
		switch m := len(f.Live); {
		case m == 0 || m < f.N && roll(3) == 0:
			f.Join(func(s *locktest.Link) {
				wire := locktest.NewFaulty(t, s.Locker, faults)
				wire.Watcher = true
				s.Locker, s.Without = wire, without
			})
		case roll(4) == 0:
			f.Leave(f.Live[roll(m)])
		case roll(4) == 0:
			in := f.Live[roll(m)]
			f.Kill(in)
			in.Cancel()
		case roll(4) == 0:
			in := f.Live[roll(m)]
			in.Link.Cut.Store(true)
			time.Sleep(time.Duration(roll(15)) * time.Second)
			in.Link.Cut.Store(false)
		}
		time.Sleep(time.Duration(roll(8000)) * time.Millisecond)
	}
	mu.Lock()
	well = true
	mu.Unlock()
	if len(f.Live) == 0 {
		return
	}
	if took := f.UntilEven(3 * time.Minute); took > time.Minute {
		t.Errorf("seed %d, without %q: even after %v", seed, without, took)
	}
	time.Sleep(time.Minute)
	before := f.Ownership()
	f.TakeMoves()
	time.Sleep(5 * time.Minute)
	if m := f.TakeMoves(); m != 0 || !slices.EqualFunc(before, f.Ownership(), slices.Equal) {
		t.Errorf("seed %d, without %q: %d moves when all was even", seed, without, m)
	}
	f.End()
}
