package partitions_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// An instance in a crash loop lives for two seconds, dies without a release, and is restarted after a
// while. The healthy ones keep nearly all partitions at work. When it stays alive in the end, it gets
// its share, and nothing else moves.
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
		t.Errorf("%s: %d moves when it stays alive, want %d", what, moves, least)
	}
	t.Logf("%s: even after %v", what, took)
	f.End()
}

// Instances that start together while nothing is owned do not have to live for a while first; nor do
// the newcomers that are left when all others leave.
func TestPartitionsColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const soon = 2 * time.Second
		f := locktest.NewFleet(t, 64)
		// A release arrives after all five have begun to leave. Otherwise one of them may still take the partition.
		together := func(l *locktest.Link) { l.Releasing = time.Millisecond }
		for range 5 {
			f.Join(together)
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
			t.Errorf("%d moves of %d partitions of those that left", moves, f.N)
		}
		f.End()
	})
}

// When all instances are killed and start again while the leases of the earlier ones have not expired, their partitions are at work
// when these have expired, and the new ones acquire what becomes free evenly: none acquires everything first.
func TestPartitionsColdStartOfManyAfterDeaths(t *testing.T) {
	const ttl = 30 * time.Second
	for _, many := range []int{3, 20} {
		for _, after := range []time.Duration{time.Second, 12 * time.Second, 25 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.EvenFleet(t, 64, many, time.Minute, holdfast.WithTTL(ttl))
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
				most := time.Minute
				if many == 3 {
					most = ttl - after + 3*time.Second
				}
				f.UntilEven(most)
				if moves := f.TakeMoves(); moves > f.N {
					t.Errorf("%d instances after %v: %d moves of %d partitions", many, after, moves, f.N)
				}
				f.End()
			})
		}
	}
}

// In a rolling deployment one instance after another is replaced, slowly, or faster than newcomers
// take part. Apart from the moves, all partitions stay at work.
func TestPartitionsRollingDeployment(t *testing.T) {
	for _, pace := range []time.Duration{2 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.EvenFleet(t, 64, 4, 3*time.Second)
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

// The member lock of a dead instance expires later than its partitions. The partitions are acquired as
// soon as their own leases have expired, and no share is reserved for the dead instance.
func TestPartitionsDeadMemberKeepsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		f := locktest.EvenFleet(t, 30, 3, 3*time.Second, holdfast.WithTTL(ttl))
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

// The partitions of a dead instance are acquired when their leases expire, not only at the next read
// that is due anyway.
func TestPartitionsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 20, 3, 6*time.Minute, partitions.WithRebalanceEvery(5*time.Minute))
		time.Sleep(6 * time.Minute)
		f.Kill(f.Live[0])
		f.UntilEven(locktest.FleetTTL + 7*time.Second) // the least time between reads is 6 s then
		f.End()
	})
}

// The server's clock steps back and leaves the expiry of a dead instance's leases a day ahead. They are
// taken over when they have not been renewed for their TTL, and not before.
func TestPartitionsClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second // there are reads every 5 s
		var back atomic.Int64
		f := locktest.NewFleet(t, 6, holdfast.WithTTL(ttl))
		f.Store = memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }))
		one := f.Join()
		two := f.Join()
		f.UntilEven(3 * time.Second)
		var least time.Duration // until none has been renewed for its TTL
		for _, i := range one.Owned() {
			r, err := two.Client.Inspect(t.Context(), f.Record(i))
			if err != nil || r.Remaining == 0 {
				t.Fatalf("%v, %v", r, err)
			}
			least = max(least, r.Remaining)
		}
		f.Kill(one)
		back.Store(int64(24 * time.Hour))
		if took := f.UntilEven(2*ttl + 15*time.Second); took < least {
			t.Errorf("all are taken over after %v, %v before the last of them could expire", took, least-took)
		}
		f.End()
	})
}
