package leases_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Two managers and other clients lock the same names at random. Names are added and removed; calls
// fail, hang and lose their replies. When the faults end, each name that is wanted is held by one of
// those that want it, the others are free, and the events agree with that.
func TestManagerRandom(t *testing.T) {
	for seed := range uint64(6) {
		managerRandom(t, seed)
	}
}

func managerRandom(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 0))
		roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
		well := false
		faults := func(string, int, holdfast.Lease) locktest.Fault {
			d := time.Duration(roll(50)) * time.Millisecond
			mu.Lock()
			defer mu.Unlock()
			if well {
				return locktest.Fault{Delay: d}
			}
			switch rnd.IntN(30) {
			case 0:
				return locktest.Fault{Hang: true}
			case 1, 2:
				return locktest.Fault{Delay: d, Lose: locktest.ErrInjected}
			case 3, 4:
				return locktest.Fault{Delay: d, Refuse: locktest.ErrInjected}
			case 5:
				return locktest.Fault{Late: time.Duration(rnd.IntN(20)) * time.Second}
			}
			return locktest.Fault{Delay: d}
		}
		names := locktest.Names("n", 12)
		only, seen := locktest.NewExclusive(t), map[string]uint64{}
		type side struct {
			m      *leases.LeaseManager
			led    *locktest.Ledger
			wanted map[string]bool
		}
		var sides []*side
		for i := range 2 {
			f := locktest.NewFaulty(t, store.Locker(), faults)
			f.Watcher, f.NoBatchReads = seed%2 == 0, seed%3 == 0 && i == 0
			c := locktest.NewClient(t, f)
			s := &side{led: locktest.NewLedger(t), wanted: map[string]bool{}}
			s.m = locktest.NewManager(t, c, holdfast.WithObserver(s.led.Observe), leases.WithParallel(1+roll(6)))
			sides = append(sides, s)
		}
		third := locktest.NewClient(t, store.Locker())
		var others sync.WaitGroup
		for range 300 {
			s, name := sides[roll(2)], names[roll(len(names))]
			switch roll(8) {
			case 0, 1, 2:
				locktest.MustAdd(t, s.m, name)
				s.wanted[name] = true
			case 3:
				others.Go(func() { _ = s.m.Remove(t.Context(), name) })
				synctest.Wait()
				delete(s.wanted, name)
			case 4:
				if h, ok := s.m.Hold(name); ok && h.Token() != seen[name] {
					seen[name] = h.Token()
					only.Enter(h.Context(), name, h.Token())
				}
			case 5:
				others.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					if h, err := third.Lock(ctx, name); err == nil {
						time.Sleep(time.Duration(roll(40)) * time.Second)
						_ = h.Release(t.Context())
					}
				})
			case 6:
				if h, ok := s.m.Hold(name); ok && roll(4) == 0 {
					others.Go(func() { _ = h.Release(t.Context()) })
				}
			}
			time.Sleep(time.Duration(roll(2000)) * time.Millisecond)
		}
		mu.Lock()
		well = true
		mu.Unlock()
		others.Wait()
		time.Sleep(75 * time.Second) // requests in doubt have expired, and all have asked again
		for _, name := range names {
			holders, wanters := 0, 0
			for _, s := range sides {
				h, ok := s.m.Hold(name)
				if ok {
					holders++
					if !s.wanted[name] {
						t.Errorf("seed %d: %q is held, and was removed", seed, name)
					}
				}
				if s.wanted[name] {
					wanters++
				}
				s.led.Mu.Lock()
				if reported := s.led.Held[name]; ok && reported != h.Token() {
					t.Errorf("seed %d: %q is held with token %d, reported was %d", seed, name, h.Token(), reported)
				}
				s.led.Mu.Unlock()
			}
			if held := locktest.IsHeld(t, store, name); holders != min(wanters, 1) || held != (holders == 1) {
				t.Errorf("seed %d: %q: %d of %d that want it hold it; the backend says %v", seed, name, holders, wanters, held)
			}
		}
		for _, s := range sides {
			if err := s.m.Close(t.Context()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	})
}
