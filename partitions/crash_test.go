package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/partitions"
)

// An instance in a crash loop: it lives for two seconds, dies without a release, and is
// restarted after a while. The healthy ones keep nearly all partitions at work, and when
// it lives on in the end, it gets its share, and nothing else moves.
func TestPartitionsCrashLoop(t *testing.T) {
	for _, without := range []string{"", "watch", "batch"} {
		for _, restart := range []int{3, 5, 10, 20, 30} {
			synctest.Test(t, func(t *testing.T) {
				crashLoop(t, without, 2*time.Second, time.Duration(restart)*time.Second)
			})
		}
	}
}

func crashLoop(t *testing.T, without string, life, restart time.Duration) {
	t.Helper()
	const n, ttl = 64, 30 * time.Second
	what := fmt.Sprintf("without %q, life %v, restart after %v", without, life, restart)
	f := locktest.NewFleet(t, n, holdfast.WithTTL(ttl))
	prepare := func(s *locktest.Link) { s.Without = without }
	f.Join(prepare)
	f.Join(prepare)
	f.UntilEven(10 * time.Second)
	f.TakeMoves()
	sum, spans := 0.0, 0.0
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		third := f.Join(prepare)
		sum += f.AverageAtWork(life) * life.Seconds()
		f.Kill(third)
		third.Cancel()
		sum += f.AverageAtWork(restart) * restart.Seconds()
		spans += (life + restart).Seconds()
	}
	average := sum / spans
	t.Logf("%s: %.1f of %d at work", what, average, n)
	if average < 62 {
		t.Errorf("%s: %.1f of %d partitions at work on average, want at least 62", what, average, n)
	}
	time.Sleep(2 * ttl)
	f.UntilEven(time.Second)
	f.TakeMoves()
	least := f.LeastMoves(nil, 1)
	f.Join(prepare)
	took := f.UntilEven(ttl + 5*time.Second)
	time.Sleep(time.Minute)
	if moves := f.TakeMoves(); moves != least {
		t.Errorf("%s: %d moves when it lives on, want %d", what, moves, least)
	}
	t.Logf("%s: even after %v", what, took)
	f.End()
}

// Instances that start at once, with nothing owned, do not wait for each other to live
// for a while; nor do those that are left when all others leave.
func TestPartitionsColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const soon = 2 * time.Second
		f := locktest.NewFleet(t, 64)
		for range 5 {
			f.Join()
			time.Sleep(100 * time.Millisecond)
		}
		f.UntilEven(soon)
		f.TakeMoves()
		old := slices.Clone(f.Live)
		for range 3 {
			f.Join()
		}
		time.Sleep(time.Second)
		f.Leave(old...)
		f.UntilEven(soon)
		if moves := f.TakeMoves(); moves > f.N {
			t.Errorf("%d moves of %d partitions from those who left", moves, f.N)
		}
		f.End()
	})
}

// All instances are killed and started again: what they had is at work when its leases
// have expired.
func TestPartitionsColdStartAfterDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 64)
		for range 3 {
			f.Join()
		}
		f.UntilEven(3 * time.Second)
		time.Sleep(time.Minute)
		for _, in := range slices.Clone(f.Live) {
			f.Kill(in)
			in.Cancel()
		}
		time.Sleep(time.Second)
		for range 3 {
			f.Join()
		}
		f.UntilEven(locktest.FleetTTL + 2*time.Second)
		f.End()
	})
}

// A rolling deployment: one instance after another is replaced, at leisure or faster than
// newcomers take part. All partitions stay at work, the hand-overs apart.
func TestPartitionsRollingDeployment(t *testing.T) {
	for _, pace := range []time.Duration{2 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, 64)
			for range 4 {
				f.Join()
			}
			f.UntilEven(3 * time.Second)
			f.TakeMoves()
			sum, steps, least := 0.0, 0, 0
			for _, old := range slices.Clone(f.Live) {
				least += f.LeastMoves(nil, 1)
				f.Join()
				sum += f.AverageAtWork(pace)
				least += f.LeastMoves([]*locktest.Instance{old}, 0)
				f.Leave(old)
				sum += f.AverageAtWork(pace)
				steps += 2
			}
			f.UntilEven(locktest.FleetTrial + 3*time.Second)
			if average := sum / float64(steps); average < 62 {
				t.Errorf("every %v: %.1f of %d partitions at work on average", pace, average, f.N)
			}
			if moves := f.TakeMoves(); pace > locktest.FleetTrial && moves != least {
				t.Errorf("every %v: %d moves, want %d", pace, moves, least)
			} else {
				t.Logf("every %v: %d moves", pace, moves)
			}
			f.End()
		})
	}
}

// The place of a dead member lasts longer than its partitions: they are taken as soon as
// their own leases have expired, and no share is kept for it.
func TestPartitionsDeadMemberKeepsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		f := locktest.NewFleet(t, 30, holdfast.WithTTL(ttl))
		for range 3 {
			f.Join()
		}
		f.UntilEven(3 * time.Second)
		time.Sleep(time.Minute)
		dead := f.Live[0]
		f.Kill(dead)
		dead.Link.MembershipRenewed.Store(true)
		time.Sleep(ttl / 3)
		dead.Link.MembershipRenewed.Store(false)
		f.UntilEven(ttl*2/3 + time.Second)
		f.End()
	})
}

// Instances that all start again while the leases of their predecessors linger take what
// becomes free evenly: none takes it all first.
func TestPartitionsColdStartOfManyAfterDeaths(t *testing.T) {
	for _, many := range []int{3, 20} {
		for _, after := range []time.Duration{12 * time.Second, 25 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFleet(t, 64, holdfast.WithTTL(30*time.Second))
				for range many {
					f.Join()
				}
				f.UntilEven(time.Minute)
				time.Sleep(time.Minute)
				for _, in := range slices.Clone(f.Live) {
					f.Kill(in)
					in.Cancel()
				}
				time.Sleep(after)
				f.TakeMoves()
				for range many {
					f.Join()
					time.Sleep(50 * time.Millisecond)
				}
				f.UntilEven(time.Minute)
				if moves := f.TakeMoves(); moves > f.N {
					t.Errorf("%d instances after %v: %d moves of %d partitions", many, after, moves, f.N)
				}
				f.End()
			})
		}
	}
}

// A member whose TTL is longer than the others' gets its share, also where nothing wakes them.
func TestPartitionsTTLsThatDiffer(t *testing.T) {
	for _, without := range []string{"", "watch"} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, 60)
			prepare := func(s *locktest.Link) { s.Without = without }
			f.Opts = []partitions.Option{holdfast.WithTTL(3 * time.Second)}
			f.Join(prepare)
			f.Join(prepare)
			f.UntilEven(10 * time.Second)
			f.Opts = []partitions.Option{holdfast.WithTTL(30 * time.Second)}
			f.Join(prepare)
			time.Sleep(5 * time.Minute)
			if !f.Even() {
				t.Errorf("without %q the shares are %v", without, f.Shares())
			}
			f.End()
		})
	}
}

// Run with the context of another lock's hold that was lost says so in its text alone.
func TestPartitionsRunWithinALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		h := locktest.MustLock(t, c, "other")
		p, err := partitions.New(c, "g", 3, locktest.WorkUntilCanceled)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- p.Run(h.Context()) }()
		time.Sleep(10 * time.Second)
		if err := store.Locker().Capabilities().Breaker.BreakNow(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; errors.Is(err, holdfast.ErrLost) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "lease lost") {
			t.Errorf("Run: %v", err)
		}
	})
}
