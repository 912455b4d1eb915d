package partitions_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/retry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Instances join, leave and die. The shares become even within a time limit and with the least moves,
// and no partition ever has two owners.
func TestPartitionsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, soon = 64, 2 * time.Second // WithRebalanceEvery is 5 s: the watch makes it faster
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
		// Not at once: until the others notice that one has died, they count it as a member that lacks what the leavers have released, and
		// one of them can take a partition that it then returns.
		f.Leave(f.Live[1], f.Live[2])
		check("8 to 6", 2*8, soon)
		dead := f.LeastMoves(f.Live[:1], 0)
		f.Kill(first)
		check("6 to 5", dead, locktest.FleetTTL+6*time.Second)
		f.End()
	})
}

// When an instance joins a large group, nearly every partition has an owner that gives some up. Each instance watches a few of them, and
// reads while they move, so that the shares become even as soon.
func TestPartitionsWatchFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 400, 32
		f := locktest.NewFleet(t, n)
		var mu sync.Mutex
		calls := 0
		counted := func(s *locktest.Link) {
			watched := 0
			s.Locker = driver.Intercept(s.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				a := next(ctx, call)
				if call.Method != driver.MethodWake || strings.Contains(call.Name, "member") || strings.Contains(call.Name, "notice") {
					return a
				}
				mu.Lock()
				defer mu.Unlock()
				calls++
				if watched++; watched > most {
					t.Errorf("%d watches of partitions in one instance", watched)
				}
				stop := a.Stop
				a.Stop = func() {
					stop()
					mu.Lock()
					defer mu.Unlock()
					watched--
				}
				return a
			})
		}
		for range 4 {
			f.Join(counted)
		}
		f.UntilEven(5 * time.Second)
		time.Sleep(time.Minute)
		calls = 0
		reads := f.Live[0].Link.GroupReads.Load()
		f.Join(counted)
		t.Log("even after", f.UntilEven(locktest.FleetTrial+3*time.Second))
		time.Sleep(time.Minute)
		if reads = f.Live[0].Link.GroupReads.Load() - reads; reads > 40 || calls > 5*n/2 {
			t.Errorf("%d reads of one instance, %d watches of all", reads, calls)
		}
		f.End()
	})
}

// Instances join, leave and die at once, again and again. The shares become even, and with the least
// moves unless some join while others leave, with any set of the backend's capabilities.
func TestPartitionsRandom(t *testing.T) {
	for _, without := range []string{"", "batch", "lists"} {
		for seed := range uint64(3) {
			synctest.Test(t, func(t *testing.T) { joinLeaveAndDie(t, seed, without) })
		}
	}
}

func joinLeaveAndDie(t *testing.T, seed uint64, without string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	f := locktest.NewFleet(t, 1+rng.IntN(40))
	for round := range 8 {
		m := len(f.Live)
		come, go1, die := rng.IntN(5), rng.IntN(m+1), 0
		if rng.IntN(2) == 0 {
			die = rng.IntN(m - go1 + 1)
		}
		if m+come-go1-die < 1 || m+come > f.N { // TestPartitionsStandBy has those
			continue
		}
		gone := slices.Clone(f.Live)
		rng.Shuffle(m, func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
		gone = gone[:go1+die]
		least := f.LeastMoves(gone, come)
		if come > 0 && len(gone) > 0 {
			// Members that notice a leave before a join acquire partitions that they then
			// return; and until a death is noticed, the dead count as members.
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

// Partitions that were acquired last are returned first: when an instance is restarted again and again,
// the same partitions move each time.
func TestPartitionsLastAcquiredReturnedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 16, 1, 3*time.Second)
		one := f.Live[0]
		var moving []int
		for range 3 {
			two := f.Join()
			f.UntilEven(locktest.FleetTrial + 3*time.Second)
			if moving != nil && !slices.Equal(moving, two.Owned()) {
				t.Errorf("%v moved before, now %v", moving, two.Owned())
			}
			moving = two.Owned()
			f.Leave(two)
			f.UntilEven(3 * time.Second)
		}
		f.Leave(one)
	})
}

// While nothing happens, each instance only renews and reads at the interval of WithRebalanceEvery, also if its watches fail again and
// again.
func TestPartitionsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 32, partitions.WithRebalanceEvery(5*time.Second))
		for range 4 {
			f.Join(func(s *locktest.Link) {
				s.Locker = driver.Intercept(s.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					a := next(ctx, call)
					if call.Method == driver.MethodWake {
						ctx, cancel := context.WithCancel(ctx)
						stop := a.Stop
						a.Stop = func() { stop(); cancel() }
						go func() {
							for retry.Wait(ctx, time.Second) {
								call.Wake(driver.Wakeup{Kind: driver.WakingEnded})
							}
						}()
					}
					return a
				})
			})
		}
		f.UntilEven(2 * time.Second)
		time.Sleep(10 * time.Second)
		in := f.Live[0]
		reads, attempts, single := in.Link.GroupReads.Load(), in.Link.Attempts.Load(), in.Link.SingleReads.Load()
		time.Sleep(time.Minute)
		reads, attempts, single = in.Link.GroupReads.Load()-reads, in.Link.Attempts.Load()-attempts, in.Link.SingleReads.Load()-single
		if reads < 10 || reads > 15 || attempts != 0 || single != 0 {
			t.Errorf("in an idle minute: %d reads of all, %d of one, %d attempts", reads, single, attempts)
		}
		if m := f.TakeMoves(); m > 24 {
			t.Errorf("%d moves", m)
		}
		f.End()
	})
}

// Only one Run runs at a time, and another may follow; no goroutine and no lock is left. Run's error matches both the context's error
// and its cause.
func TestPartitionsRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 3, 1, 3*time.Second)
		in := f.Live[0]
		if err := in.Run(t.Context()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a second Run: %v", err)
		}
		in.Cancel()
		if err := <-in.Done; !errors.Is(err, locktest.ErrRunEnded) || !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if f.Live = nil; in.Owned() != nil {
			t.Errorf("owned after Run: %v", in.Owned())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() { in.Done <- in.Run(ctx) }()
		f.Live = append(f.Live, in)
		f.UntilEven(3 * time.Second)
		if err := <-in.Done; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		l := f.Store.Locker()
		for r, err := range l.List(t.Context(), "") {
			if err != nil || r.State != driver.StateFree {
				t.Errorf("%q is %v, owner %q, %v", r.Name, r.State, r.Owner, err)
			}
			if r.Name != "group/partition-notice" && !strings.Contains(r.Owner, "#") {
				t.Errorf("the owner of %q was %q", r.Name, r.Owner)
			}
		}
		synctest.Wait() // until all events are reported
		if got := in.Events.Count(holdfast.EventAcquired); got != 8 || in.Events.Count(holdfast.EventReleased) != 8 {
			t.Errorf("%d acquired, %d released; want 2 member locks and 6 partitions", got, in.Events.Count(holdfast.EventReleased))
		}
	})
}

// Run with the context of another lock's hold that is lost returns an error whose text says so, but
// that does not match ErrLost.
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
		locktest.Break(t, store, "other")
		if err := <-done; errors.Is(err, holdfast.ErrLost) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "lease lost") {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestPartitionsInvalid(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for _, x := range []struct {
		field string
		c     *holdfast.Client
		group string
		n     int
		fn    func(context.Context, int) error
		opts  []partitions.Option
	}{
		{"client", nil, "g", 1, locktest.WorkUntilCanceled, nil},
		{"group", c, "", 1, locktest.WorkUntilCanceled, nil},
		{"n", c, "g", 0, locktest.WorkUntilCanceled, nil},
		{"n", c, "g", 10_001, locktest.WorkUntilCanceled, nil},
		{"fn", c, "g", 1, nil, nil},
		{"Name", c, strings.Repeat("g", 1010), 1, locktest.WorkUntilCanceled, nil},
		{"Owner", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithOwner(strings.Repeat("o", 1012))}},
		{"option", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{nil}},
		{"observer", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithObserver(nil)}},
		{"RebalanceEvery", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{partitions.WithRebalanceEvery(0)}},
		{"Backoff", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{partitions.WithRestart(holdfast.Backoff{})}},
		{"TTL", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithTTL(-1)}},
	} {
		_, err := partitions.New(x.c, x.group, x.n, x.fn, x.opts...)
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != x.field {
			t.Errorf("%s: got %v", x.field, err)
		}
	}
	p, err := partitions.New(c, strings.Repeat("g", 1000), 10_000, locktest.WorkUntilCanceled, holdfast.WithOwner(strings.Repeat("o", 1011)))
	if err != nil || p.Owned() != nil {
		t.Errorf("the longest names: %v, %v", p, err)
	}
}
