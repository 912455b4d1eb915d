package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// usedOnce is an old lock that fails the test if a claim is used after its release was sent. Every third
// release has an unknown outcome.
type usedOnce struct {
	migrating.Old
	t *testing.T

	mu       sync.Mutex
	released map[string]bool
	releases int
}

func (u *usedOnce) Acquire(ctx context.Context, c migrating.Claim) error {
	u.mu.Lock()
	if u.released[c.Proof] {
		u.t.Error("the old lock is asked for with a proof whose release was sent")
	}
	u.mu.Unlock()
	return u.Old.Acquire(ctx, c)
}

func (u *usedOnce) Release(ctx context.Context, c migrating.Claim) error {
	u.mu.Lock()
	u.released[c.Proof] = true
	u.releases++
	fails := u.releases%3 == 0
	u.mu.Unlock()
	err := u.Old.Release(ctx, c)
	if fails {
		return errors.New("no answer")
	}
	return err
}

// While a program that has the new lock alone holds it, each attempt takes the old lock and releases it.
func TestNoIDIsUsedAfterItsRelease(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(t *testing.T, client *holdfast.Client) error{
		"Lock": func(t *testing.T, client *holdfast.Client) error {
			return locktest.MustLock(t, client, "job").Release(t.Context())
		},
		"TryLock": func(t *testing.T, client *holdfast.Client) error {
			for {
				if h, err := client.TryLock(t.Context(), "job"); err == nil {
					return h.Release(t.Context())
				}
				time.Sleep(time.Second)
			}
		},
		"runner": func(t *testing.T, client *holdfast.Client) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			runner, err := holdfast.NewLeaderAwareRunner(client, "job")
			if err != nil {
				return err
			}
			err = runner.Run(ctx, func(context.Context) error { cancel(); return nil })
			return errors.Join(err, runner.Close(t.Context()))
		},
		"LeaseManager": func(t *testing.T, client *holdfast.Client) error {
			m, err := leases.New(client)
			if err != nil {
				return err
			}
			if err := m.Add("job"); err != nil {
				return err
			}
			for _, held := m.Hold("job"); !held; _, held = m.Hold("job") {
				time.Sleep(time.Second)
			}
			return m.Close(t.Context())
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := &usedOnce{Old: migrating.FromLocker(memory.NewStore().Locker()), t: t, released: map[string]bool{}}
				other := memory.NewStore().Locker()
				lease, err := other.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("new"), TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Minute, func() { _ = other.Release(context.Background(), lease) })
				client := locktest.NewClient(t, newLocker(t, plain{other}, old))
				if err := take(t, client); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				old.mu.Lock()
				defer old.mu.Unlock()
				if old.releases < 3 {
					t.Errorf("the old lock was released %d times, want at least 3", old.releases)
				}
			})
		})
	}
}

// delayed is a Locker whose releases arrive again after random times.
type delayed struct {
	driver.Locker
	random *rand.Rand
	mu     *sync.Mutex
}

func (d delayed) Release(ctx context.Context, l driver.Lease) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range d.random.IntN(3) {
		time.AfterFunc(time.Duration(d.random.Int64N(int64(10*time.Second))), func() { _ = d.Locker.Release(context.Background(), l) })
	}
	return d.Locker.Release(ctx, l)
}

// Programs with the old lock alone and with both exclude each other, whenever releases arrive. Some
// holders die, and their old lease ends a moment before the new one.
func TestLateReleasesInRandomSchedules(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a schedule, not a secret
			mu := new(sync.Mutex)
			old, store := memory.NewStore(), memory.NewStore()
			newPart := func() driver.Locker { return delayed{plain{store.Locker()}, random, mu} }
			oldPart := func() driver.Locker { return delayed{old.Locker(), random, mu} }
			between := func(least, most time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return least + time.Duration(random.Int64N(int64(most-least)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			inside := locktest.NewExclusive(t)
			var entered atomic.Uint64
			var programs sync.WaitGroup
			for i := range 3 {
				locker := oldPart()
				if i > 0 {
					locker = newLocker(t, newPart(), migrating.FromLocker(locker))
				}
				client := locktest.NewClient(t, locker, holdfast.WithTTL(5*time.Second), holdfast.WithPollInterval(200*time.Millisecond))
				programs.Go(func() {
					for ctx.Err() == nil {
						_ = client.Do(ctx, "job", func(ctx context.Context) error {
							inside.Enter(ctx, "job", entered.Add(1)) // tokens of two stores
							select {
							case <-ctx.Done():
							case <-time.After(between(0, 8*time.Second)):
							}
							return nil
						})
						time.Sleep(between(0, time.Second))
					}
				})
			}
			programs.Go(func() {
				for ctx.Err() == nil {
					req := driver.Request{Name: "job", ID: driver.NewLeaseID(fmt.Sprint(entered.Add(1))), TTL: 2 * time.Second}
					if _, err := oldPart().TryAcquire(ctx, req); err == nil {
						req.TTL += time.Second
						_, _ = newPart().TryAcquire(ctx, req)
					}
					time.Sleep(between(time.Second, 10*time.Second))
				}
			})
			programs.Wait()
			time.Sleep(10 * time.Second) // the last releases
		})
	}
}

// After a lost answer of the new lock and a refusal of the old one, nobody may need the new lock: it is
// released at once.
func TestRefusedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.recorded.loseAnswer = true
		client := locktest.NewClient(t, p.locker)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		p.recorded.answerLost = func() { // meanwhile an old program takes the lock, after a pause
			p.old.Remove("job")
			if _, err := p.old.Locker().TryAcquire(ctx, request("job", "of an old program")); err != nil {
				t.Error(err)
			}
		}
		go func() {
			defer close(ended)
			_, _ = client.Lock(ctx, "job")
		}()
		time.Sleep(5 * time.Second)
		if r, err := p.new.Locker().Inspect(ctx, "job"); err != nil || r.State != driver.StateFree || r.Token == 0 {
			t.Errorf("the new lock stays %v with token %d (%v)", r.State, r.Token, err)
		}
		cancel()
		<-ended
	})
}
