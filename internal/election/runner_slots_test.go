package election_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A pool has as many leaders as slots, until fewer instances are left.
func TestPoolOfLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, instances = 3, 8
		store := memory.NewStore()
		check := locktest.NewPool(t, slots)
		var runners []*holdfast.LeaderAwareRunner
		var wg sync.WaitGroup
		for range instances {
			r := locktest.NewRunnerOf(t, locktest.NewClient(t, store.Locker()), "pool", holdfast.WithSlots(slots))
			runners = append(runners, r)
			wg.Go(func() {
				_ = r.Run(t.Context(), func(ctx context.Context) error {
					h, _ := holdfast.HoldFromContext(ctx)
					check.Enter(h)
					<-ctx.Done()
					return ctx.Err()
				})
			})
		}
		for left := instances; left >= 0; left-- {
			time.Sleep(time.Minute)
			leaders, last := 0, -1
			for i, r := range runners {
				if r.IsLeader() {
					leaders, last = leaders+1, i
				}
			}
			if leaders != min(slots, left) {
				t.Errorf("%d leaders of %d instances", leaders, left)
			}
			r, err := runners[0].Leader(t.Context())
			if err != nil || (r.State == driver.StateHeld) != (left > 0) {
				t.Errorf("Leader: %+v, %v with %d instances", r, err, left)
			}
			if last >= 0 {
				if err := runners[last].Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		wg.Wait()
	})
}

// With slots, RunTaskOnLeader runs a periodic job in as many instances as there are slots.
func TestPoolOfPeriodicLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, instances = 2, 5
		store := memory.NewStore()
		var runners []*holdfast.LeaderAwareRunner
		for range instances {
			runners = append(runners, locktest.NewRunnerOf(t, locktest.NewClient(t, store.Locker()), "pool", holdfast.WithSlots(slots)))
		}
		for range 20 {
			ran := 0
			for _, r := range runners {
				did, err := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
				if err != nil {
					t.Error(err)
				}
				if did {
					ran++
				}
			}
			if ran != slots {
				t.Errorf("ran in %d instances", ran)
			}
			time.Sleep(5 * time.Second)
		}
		for _, r := range runners {
			_ = r.Close(t.Context())
		}
	})
}
