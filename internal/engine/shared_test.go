package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// mode is the option for a reader, or none for a writer.
func mode(reads bool) []holdfast.Option {
	if reads {
		return []holdfast.Option{holdfast.WithShared()}
	}
	return nil
}

// readAndWrite makes clients that read and write under one lock for a while, and checks who has it.
func readAndWrite(t *testing.T, clients []*holdfast.Client, rounds int, work time.Duration) *locktest.Readers {
	t.Helper()
	check := locktest.NewReaders(t)
	var wg sync.WaitGroup
	for n, c := range clients {
		for i := range 4 {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(i)))
			wg.Go(func() {
				for range rounds {
					reads := rng.IntN(4) > 0
					err := c.Do(t.Context(), "cache", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						if reads {
							check.Read(ctx, token)
						} else {
							check.Write(ctx, token)
						}
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(rng.Int64N(int64(work)))):
						}
						return nil
					}, mode(reads)...)
					if err != nil && !errors.Is(err, holdfast.ErrLost) {
						t.Errorf("Do: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	return check
}

// Any number of readers or one writer have the lock at any instant, also while calls fail, hang, are late or lose their
// replies. Everybody gets it in the end.
func TestReadersAndWritersUnderFaults(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			var clients []*holdfast.Client
			for p := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, p))
				var mu sync.Mutex
				l := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
					mu.Lock()
					defer mu.Unlock()
					d := time.Duration(rng.IntN(4000)) * time.Millisecond
					return []locktest.Fault{{Refuse: locktest.ErrInjected}, {Lose: locktest.ErrInjected}, {Hang: true}, {Late: d}, {Delay: d},
						{}, {}, {}, {}, {}}[rng.IntN(10)]
				})
				l.Watcher = p%2 == 0
				clients = append(clients, locktest.NewClient(t, l, holdfast.WithTTL(10*time.Second)))
			}
			check := readAndWrite(t, clients, 8, 12*time.Second)
			if check.Reads == 0 || check.Writes == 0 || check.Most < 2 {
				t.Errorf("%d readers, at most %d of them at once, and %d writers", check.Reads, check.Most, check.Writes)
			}
		})
	}
}

// Readers of one Client have holds of their own, a writer of it waits for all of them, and a reader behind the writer
// waits for that.
func TestReadersOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c, other := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		shared := holdfast.WithShared()
		one, two := locktest.MustLock(t, c, "cache", shared), locktest.MustTryLock(t, c, "cache", shared)
		three := locktest.MustTryLock(t, other, "cache", shared)
		if one.Lease().ID == two.Lease().ID || one.Token() >= two.Token() || two.Token() >= three.Token() || one.Lease().Mode != driver.Shared {
			t.Errorf("the readers have %v, %v and %v", one, two, three)
		}
		var order []string
		var mu sync.Mutex
		wait := func(c *holdfast.Client, who string, opts ...holdfast.Option) {
			go func() {
				h, err := c.Lock(t.Context(), "cache", opts...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				time.Sleep(time.Second)
				_ = h.Release(t.Context())
			}()
			time.Sleep(time.Second)
		}
		wait(c, "writer")
		wait(c, "reader", shared)
		wait(other, "other reader", shared)
		if _, err := other.TryLock(t.Context(), "cache", shared); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a reader that does not wait has overtaken the writer: %v", err)
		}
		for _, h := range []*holdfast.Hold{one, two} {
			locktest.Release(t, h)
		}
		granted := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		time.Sleep(time.Minute) // longer than a TTL: the last reader is renewed
		if err := three.Err(); err != nil || len(granted()) > 0 {
			t.Errorf("the last reader: %v; %v were granted the lock", err, granted())
		}
		locktest.Release(t, three)
		time.Sleep(time.Minute)
		if got := granted(); len(got) != 3 || got[0] != "writer" {
			t.Errorf("the order is %v", got)
		}
	})
}

// A reader that nothing wakes joins other readers at its next poll, also if each of its reads shows some: they may follow one another
// without end.
func TestReaderThatPollsJoinsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		writer := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "cache")
		polls := locktest.FaultyClient(t, store.Locker(), nil)
		granted := make(chan time.Time, 1)
		go func() {
			_, _ = polls.Lock(t.Context(), "cache", shared)
			granted <- time.Now()
		}()
		time.Sleep(time.Minute)
		locktest.Release(t, writer)
		others, released := locktest.NewClient(t, store.Locker()), time.Now()
		var last *holdfast.Hold
		for range 100 { // there is always one
			next := locktest.MustTryLock(t, others, "cache", shared)
			if last != nil {
				_ = last.Release(t.Context())
			}
			last = next
			time.Sleep(time.Second)
		}
		select {
		case at := <-granted:
			if d := at.Sub(released); d > 10*time.Second {
				t.Errorf("granted after %v", d)
			}
		default:
			t.Error("not granted while others read")
		}
	})
}

// One reader's loss is its own.
func TestLossOfOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		c := locktest.NewClient(t, l)
		one, two := locktest.MustLock(t, c, "cache", holdfast.WithShared()), locktest.MustLock(t, c, "cache", holdfast.WithShared())
		if err := l.Break(t.Context(), "cache", driver.BreakToken(one.Token())); err != nil {
			t.Fatal(err)
		}
		<-one.Context().Done()
		if !errors.Is(one.Err(), holdfast.ErrLost) || two.Err() != nil {
			t.Errorf("the broken reader: %v, the other: %v", one.Err(), two.Err())
		}
		time.Sleep(time.Minute)
		if err := two.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A caller within a hold of the same name is refused at once, in either mode: a writer that waits would make both wait
// forever.
func TestNoLockWithinASharedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		for _, outer := range []bool{true, false} {
			err := c.Do(t.Context(), "cache", func(ctx context.Context) error {
				for _, inner := range []bool{true, false} {
					for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} { // both belong to the hold
						began := time.Now()
						_, err := c.Lock(ctx, "cache", mode(inner)...)
						if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), "the caller itself holds it and would deadlock") ||
							time.Since(began) > 0 {
							t.Errorf("shared %v within shared %v: %v after %v", inner, outer, err, time.Since(began))
						}
					}
				}
				return nil
			}, mode(outer)...)
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// onlyExclusive is a Locker that does not know shared locks.
type onlyExclusive struct{ driver.Locker }

func (l onlyExclusive) Info() driver.Info {
	info := l.Locker.Info()
	info.Modes = driver.Modes{}
	return info
}

// What a shared lock cannot do is refused before any request.
func TestSharedArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), nil)
		c := locktest.NewClient(t, f)
		ctx, shared := t.Context(), holdfast.WithShared()
		lock := func(opts ...holdfast.Option) error {
			_, err := c.TryLock(ctx, "cache", append(opts, shared)...)
			return err
		}
		exclusive := locktest.NewClient(t, onlyExclusive{f})
		_, unknown := exclusive.Lock(ctx, "cache", shared)
		_, leasesErr := leases.New(c, shared)
		_, partitionsErr := partitions.New(c, "group", 2, func(context.Context, int) error { return nil }, shared)
		_, runnerErr := holdfast.NewLeaderAwareRunner(c, "leader", shared)
		for what, err := range map[string]error{
			"with slots": lock(holdfast.WithSlots(2)), "with data": lock(holdfast.WithData([]byte("x"))),
			"with a long owner":    lock(holdfast.WithOwner(strings.Repeat("x", driver.MaxSharedOwner+1))),
			"several names":        c.DoAll(ctx, []string{"a", "b"}, func(context.Context) error { return nil }, shared),
			"a backend without it": unknown, "LeaseManager": leasesErr, "Partitions": partitionsErr, "a runner": runnerErr,
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := f.Count(locktest.OpAcquire); n > 0 {
			t.Errorf("%d requests", n)
		}
		h := locktest.MustLock(t, c, "cache", shared)
		for what, err := range map[string]error{
			"WriteData":  h.WriteData(ctx, []byte("x")),
			"UpdateData": h.UpdateData(ctx, func(old []byte) ([]byte, error) { return old, nil }),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "must be exclusive") {
				t.Errorf("%s of a reader: %v", what, err)
			}
		}
	})
}

// A thousand readers have one lock, each renewed, and one more waits for one of them.
func TestThousandReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		var holds []*holdfast.Hold
		for range driver.MaxHolders {
			holds = append(holds, locktest.MustTryLock(t, c, "cache", holdfast.WithShared()))
		}
		if _, err := c.TryLock(t.Context(), "cache", holdfast.WithShared()); !errors.Is(err, holdfast.ErrHeld) ||
			!strings.Contains(err.Error(), fmt.Sprintf("shared by %d", driver.MaxHolders)) {
			t.Errorf("one reader too many: %v", err)
		}
		time.Sleep(2 * time.Minute)
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatal(err)
			}
			locktest.Release(t, h)
		}
		locktest.MustTryLock(t, c, "cache")
	})
}

// Events say whether a hold shares its lock.
func TestEventsOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		c := locktest.NewClient(t, memory.NewStore().Locker(), holdfast.WithObserver(func(e holdfast.Event) {
			got = append(got, fmt.Sprintf("%v %v", e.Type, e.Mode))
			if shared := strings.Contains(e.String(), ", shared"); shared != (e.Mode == driver.Shared) {
				t.Errorf("%v", e)
			}
		}))
		for _, reads := range []bool{true, false} {
			if err := c.Do(t.Context(), "cache", locktest.EmptyTask, mode(reads)...); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if want := []string{"acquired shared", "released shared", "acquired exclusive", "released exclusive"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
