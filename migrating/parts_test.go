package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// What would concern one of the two locks alone is not offered, and no record has a revision that could
// take over the new lock alone.
func TestNothingPassesTheOldLockBy(t *testing.T) {
	t.Parallel()
	p, ctx := newPair(t), t.Context()
	c := p.locker.Capabilities()
	if c.BatchRenewer != nil || c.BatchReleaser != nil || c.Breaker != nil || driver.Watches(p.locker) ||
		c.BatchInspector != nil || c.Checker != nil {
		t.Errorf("capabilities of one lock: %+v", c)
	}
	if _, err := p.locker.TryAcquire(ctx, request("job", "1")); err != nil {
		t.Fatal(err)
	}
	for r, err := range c.Lister.List(ctx, "") {
		if err != nil || r.Name != "job" || r.State != driver.StateHeld || !r.Revision.IsZero() {
			t.Errorf("listed: %+v (%v)", r, err)
		}
	}
	if r, err := p.locker.Inspect(ctx, "job"); err != nil || !r.Revision.IsZero() {
		t.Errorf("inspected: %+v (%v)", r, err)
	}
	l := newLocker(t, memory.NewStore().Locker(), p.recorder)
	if name := l.Info().Backend; name != "memory" {
		t.Errorf("the backend is %q, want that of the new lock", name)
	}
}

// sharing is a new lock that grants shared locks, too.
type sharing struct{ driver.Locker }

func (s sharing) Info() driver.Info {
	info := s.Locker.Info()
	info.Modes.Shared = true
	return info
}

// An old lock has one holder, so the two together cannot be shared.
func TestNoSharedLocks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l := newLocker(t, sharing{memory.NewStore().Locker()}, p.recorder)
	req := request("job", "1")
	req.Mode = driver.Shared
	if _, err := l.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a shared lock: %v", err)
	}
	if calls := p.taken(); len(calls) > 0 || l.Info().Modes.Has(driver.Shared) {
		t.Errorf("modes %v, calls %q", l.Info().Modes, calls)
	}
}

// A failed release of one lock does not leave the other one held.
func TestFailedReleaseOfEither(t *testing.T) {
	t.Parallel()
	for which, stay := range map[string]struct{ old, new driver.State }{
		"old": {driver.StateHeld, driver.StateFree},
		"new": {driver.StateFree, driver.StateHeld},
	} {
		p, ctx := newPair(t), t.Context()
		lease, err := p.locker.TryAcquire(ctx, request("job", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if which == "old" {
			p.recorder.set("release", errors.New("no answer"))
		} else {
			p.recorded.refuseRelease = errors.New("no answer")
		}
		if err := p.locker.Release(ctx, lease); err == nil || driver.OutcomeKnown(err) {
			t.Errorf("%s: %v, want an unknown outcome", which, err)
		}
		for name, got := range map[string]struct {
			store *memory.Store
			want  driver.State
		}{"old": {p.old, stay.old}, "new": {p.new, stay.new}} {
			if r, err := got.store.Locker().Inspect(ctx, "job"); err != nil || r.State != got.want {
				t.Errorf("the release of the %s lock failed: the %s one is %v (%v), want %v", which, name, r.State, err, got.want)
			}
		}
	}
}

// That the old lock is lost already does not hide that the new one was certainly not released.
func TestFailedReleaseBesideALoss(t *testing.T) {
	t.Parallel()
	p, ctx := newPair(t), t.Context()
	lease, err := p.locker.TryAcquire(ctx, request("job", "1"))
	if err != nil {
		t.Fatal(err)
	}
	p.recorder.set("release", driver.ErrLost)
	p.recorded.refuseRelease = driver.Denied(errors.New("read-only"))
	if err := p.locker.Release(ctx, lease); !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrLost) {
		t.Errorf("Release: %v, want what keeps the new lock held", err)
	}
}

// hangs is an old lock whose renewals and releases do not answer.
type hangs struct{ migrating.Old }

func (hangs) Renew(ctx context.Context, _ migrating.Claim) error   { <-ctx.Done(); return ctx.Err() }
func (hangs) Release(ctx context.Context, _ migrating.Claim) error { <-ctx.Done(); return ctx.Err() }

// A backend that does not answer leaves time for the call of the other.
func TestOneBackendDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, bounded := range map[string]bool{"time limit of the caller": true, "own time limit": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call := func(f func(ctx context.Context) error) error {
					ctx := t.Context()
					if bounded {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
						defer cancel()
					}
					return f(ctx)
				}
				old, store := memory.NewStore(), memory.NewStore()
				l := newLocker(t, store.Locker(), hangs{migrating.FromLocker(old.Locker())})
				lease, err := l.TryAcquire(t.Context(), request("job", "1"))
				if err != nil {
					t.Fatal(err)
				}
				before, _ := store.Locker().Inspect(t.Context(), "job")
				time.Sleep(time.Second)
				if err := call(func(ctx context.Context) error { return errOf(l.Renew(ctx, lease)) }); err == nil || driver.OutcomeKnown(err) {
					t.Errorf("renewal of half: %v", err)
				}
				if after, _ := store.Locker().Inspect(t.Context(), "job"); !after.RenewedAt.Equal(before.ReadAt.Add(time.Second)) {
					t.Errorf("the new lock was renewed at %v, want at once", after.RenewedAt)
				}
				other := newLocker(t, silent{store.Locker()}, migrating.FromLocker(old.Locker()))
				before, _ = old.Locker().Inspect(t.Context(), "job")
				time.Sleep(time.Second)
				if err := call(func(ctx context.Context) error { return errOf(other.Renew(ctx, lease)) }); err == nil || driver.OutcomeKnown(err) {
					t.Errorf("renewal of the other half: %v", err)
				}
				if after, _ := old.Locker().Inspect(t.Context(), "job"); !after.RenewedAt.Equal(before.ReadAt.Add(time.Second)) {
					t.Errorf("the old lock was renewed at %v, want at once", after.RenewedAt)
				}
				if err := call(func(ctx context.Context) error { return l.Release(ctx, lease) }); err == nil || driver.OutcomeKnown(err) {
					t.Errorf("release of half: %v", err)
				}
				if r, _ := store.Locker().Inspect(t.Context(), "job"); r.State != driver.StateFree {
					t.Errorf("the new lock is %v", r.State)
				}
				if err := call(func(ctx context.Context) error { return other.Release(ctx, lease) }); err == nil || driver.OutcomeKnown(err) {
					t.Errorf("release of the other half: %v", err)
				}
				if r, _ := old.Locker().Inspect(t.Context(), "job"); r.State != driver.StateFree {
					t.Errorf("the old lock is %v", r.State)
				}
			})
		})
	}
}

// silent is a Locker whose renewals and releases do not answer.
type silent struct{ driver.Locker }

func (silent) Renew(ctx context.Context, l driver.Lease) (driver.Lease, error) {
	<-ctx.Done()
	return l, ctx.Err()
}

func (silent) Release(ctx context.Context, _ driver.Lease) error { <-ctx.Done(); return ctx.Err() }

// All programs that wait get the lock about equally often, whichever of the locks they take and whichever of them
// have queues.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	for phase, single := range map[string]string{"rollout 1": "old", "rollout 2": "new"} {
		for _, queues := range []string{"both", "only that one"} {
			t.Run(phase+", queue of "+queues, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					old, store := memory.NewStore(), memory.NewStore()
					part := func(s *memory.Store, which string) driver.Locker {
						if queues == "both" || which == single {
							return s.Locker()
						}
						return plain{s.Locker()}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					var granted [4]atomic.Int64
					var programs sync.WaitGroup
					for i := range granted {
						var locker driver.Locker
						switch {
						case i >= 2:
							locker = newLocker(t, part(store, "new"), migrating.FromLocker(part(old, "old")))
						case single == "old":
							locker = part(old, "old")
						default:
							locker = part(store, "new")
						}
						client := locktest.NewClient(t, locker, holdfast.WithOwner(fmt.Sprint("program ", i)))
						programs.Go(func() {
							for ctx.Err() == nil {
								_ = client.Do(ctx, "job", func(context.Context) error {
									granted[i].Add(1)
									time.Sleep(20 * time.Millisecond)
									return nil
								})
							}
						})
					}
					programs.Wait()
					most := max(granted[0].Load(), granted[1].Load())
					for i := range granted {
						if n := granted[i].Load(); n < most/20 || n < 10 {
							t.Errorf("program %d was granted the lock %d times, another %d times", i, n, most)
						}
					}
					t.Logf("grants: %d %d; with both locks %d %d", granted[0].Load(), granted[1].Load(), granted[2].Load(), granted[3].Load())
				})
			})
		}
	}
}

// A waiter that gives up leaves the queues of both locks.
func TestLeavingTheQueues(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"old", "new"} {
		synctest.Test(t, func(t *testing.T) {
			old, store := memory.NewStore(), memory.NewStore()
			held := map[string]*memory.Store{"old": old, "new": store}[which].Locker()
			if _, err := held.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			client := locktest.NewClient(t, newLocker(t, store.Locker(), migrating.FromLocker(old.Locker())))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = client.Lock(ctx, "job")
			}()
			time.Sleep(time.Second)
			if r, _ := held.Inspect(ctx, "job"); r.Waiters != 1 {
				t.Errorf("%d waiters of the %s lock, want 1", r.Waiters, which)
			}
			cancel()
			<-ended
			time.Sleep(time.Second)
			if r, _ := held.Inspect(t.Context(), "job"); r.Waiters != 0 {
				t.Errorf("%d waiters of the %s lock after giving up", r.Waiters, which)
			}
		})
	}
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
