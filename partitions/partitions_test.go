package partitions_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/partitions"
)

// Instances join, leave and die: the shares become even within a bound, with no more
// moves than must be, and no partition ever has two owners.
func TestPartitionsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, soon = 64, 2 * time.Second // WithRebalanceEvery is 5 s: the watch is what is quick
		f := locktest.NewFleet(t, n)
		check := func(what string, least int, most time.Duration) {
			took := f.UntilEven(most)
			if moves := f.TakeMoves(); moves != least {
				t.Errorf("%s: %d moves, want %d", what, moves, least)
			}
			t.Logf("%s: even after %v", what, took)
		}
		first := f.Join()
		check("1 alone", 0, soon)
		f.Join()
		f.Join()
		check("1 to 3", n-22, locktest.FleetTrial+soon) // the first keeps 22
		for range 5 {
			f.Join()
		}
		check("3 to 8", 5*8, locktest.FleetTrial+soon)
		f.Kill(first)
		f.Leave(f.Live[0], f.Live[1])
		check("8 to 5", 3*8, locktest.FleetTTL+6*time.Second)
		f.End()
	})
}

// Instances join, leave and die at once, again and again: even, and with the least moves
// unless some join while others go, whatever a backend can do.
func TestPartitionsRandom(t *testing.T) {
	for _, without := range []string{"", "batch", "lists"} {
		for seed := range uint64(3) {
			synctest.Test(t, func(t *testing.T) { shuffleFleet(t, seed, without) })
		}
	}
}

func shuffleFleet(t *testing.T, seed uint64, without string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	f := locktest.NewFleet(t, 1+rng.IntN(40))
	for round := range 8 {
		m := len(f.Live)
		come, go1, die := rng.IntN(5), rng.IntN(m+1), 0
		if rng.IntN(2) == 0 {
			die = rng.IntN(m - go1 + 1)
		}
		if m+come-go1-die < 1 || m+come > f.N { // those who stand by have a test of their own
			continue
		}
		gone := slices.Clone(f.Live)
		rng.Shuffle(m, func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
		gone = gone[:go1+die]
		least := f.LeastMoves(gone, come)
		if come > 0 && len(gone) > 0 {
			// Those who see a leave first take what they give to who joins next; and
			// until a death is known, the dead are counted on.
			least += f.N
		}
		for _, in := range gone[go1:] {
			f.Kill(in)
		}
		for range come {
			f.Join(func(s *locktest.Link) { s.Without = without })
		}
		f.Leave(gone[:go1]...)
		took := f.UntilEven(locktest.FleetTTL + 30*time.Second)
		if moves := f.TakeMoves(); moves > least {
			t.Errorf("without %q, seed %d, round %d: %d instances, %d come, %d leave, %d die: %d moves of %d, want at most %d, after %v",
				without, seed, round, m, come, go1, die, moves, f.N, least, took)
		}
	}
	f.End()
}

// More instances than partitions: the surplus stand by, and step in.
func TestPartitionsStandBy(t *testing.T) {
	for _, n := range []int{1, 3, 3, 3, 3, 3} { // who is first is chance
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, n)
			for range n + 2 {
				f.Join()
			}
			time.Sleep(20 * time.Second)
			owners := slices.DeleteFunc(slices.Clone(f.Live), func(in *locktest.Instance) bool { return len(in.Owned()) == 0 })
			if len(owners) != n || !f.OneEach() {
				t.Fatalf("n=%d: shares of %v", n, f.Shares())
			}
			f.TakeMoves()
			f.Leave(owners[0])
			time.Sleep(3 * time.Second)
			if m := f.TakeMoves(); !f.OneEach() || m != 1 {
				t.Errorf("n=%d, one left: shares of %v, %d moves", n, f.Shares(), m)
			}
			for _, in := range slices.Clone(f.Live) {
				if len(in.Owned()) > 0 {
					f.Kill(in)
					break
				}
			}
			time.Sleep(locktest.FleetTTL + 8*time.Second)
			if m := f.TakeMoves(); !f.OneEach() || m != 1 {
				t.Errorf("n=%d, one died: shares of %v, %d moves", n, f.Shares(), m)
			}
			f.End()
		})
	}
}

// While nothing happens each instance reads every WithRebalanceEvery, and renews.
func TestPartitionsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 32, partitions.WithRebalanceEvery(5*time.Second))
		for range 4 {
			f.Join()
		}
		f.UntilEven(2 * time.Second)
		time.Sleep(10 * time.Second)
		in := f.Live[0]
		reads, tries, single := in.Link.GroupReads.Load(), in.Link.Attempts.Load(), in.Link.SingleReads.Load()
		time.Sleep(time.Minute)
		reads, tries, single = in.Link.GroupReads.Load()-reads, in.Link.Attempts.Load()-tries, in.Link.SingleReads.Load()-single
		if reads < 10 || reads > 15 || tries != 0 || single != 0 {
			t.Errorf("in an idle minute: %d reads of all, %d of one, %d attempts", reads, single, tries)
		}
		if m := f.TakeMoves(); m > 24 {
			t.Errorf("%d moves", m)
		}
		f.End()
	})
}
