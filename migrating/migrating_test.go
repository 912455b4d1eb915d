package migrating_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLocker(t *testing.T, locker driver.Locker, old migrating.Old, opts ...migrating.Option) *migrating.Locker {
	t.Helper()
	l, err := migrating.New(locker, old, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Two locks keep the contract of one, also if their releases arrive twice and late, and if the leases of
// the old lock end a little before those of the new one.
func TestConformance(t *testing.T) {
	for name, part := range map[string]func(*memory.Store) driver.Locker{
		"with queues":    func(s *memory.Store) driver.Locker { return s.Locker() },
		"without queues": func(s *memory.Store) driver.Locker { return plain{s.Locker()} },
	} {
		t.Run(name, func(t *testing.T) {
			ahead, clock := locktest.NewClock(), locktest.NewClock()
			old, store := memory.NewStore(memory.WithClock(ahead.Now)), memory.NewStore(memory.WithClock(clock.Now))
			var late, lateOld lockertest.LateReleases
			var rights denials
			lockertest.Run(t, lockertest.Config{
				New: func(t *testing.T) driver.Locker {
					t.Helper()
					l := newLocker(t, late.Locker(rights.locker(part(store))), migrating.FromLocker(lateOld.Locker(rights.locker(part(old)))))
					t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
					return l
				},
				Advance: func(d time.Duration) {
					ahead.Advance(d + d/50) // 2 % faster
					clock.Advance(d)
				},
				Forget: func(_ context.Context, name string) error {
					old.Remove(name)
					store.Remove(name)
					return nil
				},
				Deny:    rights.deny,                             // of both locks: no clause is about half a lock
				Without: []string{"Damage", "FailOver", "Stall"}, // no server fails
			})
		})
	}
}

// denials make the Lockers that they wrap deny every call.
type denials struct{ on atomic.Bool }

func (d *denials) locker(l driver.Locker) driver.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if !d.on.Load() {
			return next(ctx, call)
		}
		refusal := driver.Denied(errors.New("no right"))
		return driver.Answer{Err: &driver.OpError{Op: "call", Backend: "memory", Name: call.Concerned().Name, Err: refusal}}
	})
}

func (d *denials) deny(context.Context, string) (allow func(), err error) {
	d.on.Store(true)
	return func() { d.on.Store(false) }, nil
}

// plain is a Locker without capabilities but those of reading.
type plain struct{ driver.Locker }

func (p plain) Capabilities() driver.Capabilities {
	from := p.Locker.Capabilities()
	return driver.Capabilities{Lister: from.Lister, DataStore: from.DataStore}
}

// recorder is an old lock that records its calls, and whose answers a test can choose.
type recorder struct {
	migrating.Old
	mu    sync.Mutex
	calls *[]string
	fail  map[string]error
}

func (r *recorder) call(name string, f func() error) error {
	r.mu.Lock()
	*r.calls = append(*r.calls, "old "+name)
	err, ok := r.fail[name]
	r.mu.Unlock()
	if ok {
		return err
	}
	return f()
}

func (r *recorder) set(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[name] = err
}

func (r *recorder) Acquire(ctx context.Context, c migrating.Claim) error {
	return r.call("acquire", func() error { return r.Old.Acquire(ctx, c) })
}

func (r *recorder) Renew(ctx context.Context, c migrating.Claim) error {
	return r.call("renew", func() error { return r.Old.Renew(ctx, c) })
}

func (r *recorder) Release(ctx context.Context, c migrating.Claim) error {
	return r.call("release", func() error { return r.Old.Release(ctx, c) })
}

// recorded is a new lock that records its calls into the same list.
type recorded struct {
	driver.Locker
	old        *recorder
	loseAnswer bool // of the next grant
	answerLost func()

	refuseRelease error // of the new lock, or nil
}

func (r *recorded) record(name string) {
	r.old.mu.Lock()
	defer r.old.mu.Unlock()
	*r.old.calls = append(*r.old.calls, "new "+name)
}

func (r *recorded) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	r.record("acquire")
	lease, err := r.Locker.TryAcquire(ctx, req)
	if r.loseAnswer {
		r.loseAnswer = false
		r.answerLost()
		return driver.Lease{}, errors.New("no answer")
	}
	return lease, err
}

func (r *recorded) Renew(ctx context.Context, l driver.Lease) (driver.Lease, error) {
	r.record("renew")
	return r.Locker.Renew(ctx, l)
}

func (r *recorded) Release(ctx context.Context, l driver.Lease) error {
	r.record("release")
	if r.refuseRelease != nil {
		return r.refuseRelease
	}
	return r.Locker.Release(ctx, l)
}

type pair struct {
	old, new *memory.Store
	recorder *recorder
	recorded *recorded
	locker   *migrating.Locker
}

func newPair(t *testing.T, opts ...migrating.Option) *pair {
	t.Helper()
	p := &pair{old: memory.NewStore(), new: memory.NewStore()}
	p.recorder = &recorder{Old: migrating.FromLocker(p.old.Locker()), calls: new([]string), fail: map[string]error{}}
	p.recorded = &recorded{Locker: p.new.Locker(), old: p.recorder}
	p.locker = newLocker(t, p.recorded, p.recorder, opts...)
	return p
}

// taken returns the calls since the last time.
func (p *pair) taken() []string {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	calls := slices.Clone(*p.recorder.calls)
	*p.recorder.calls = nil
	return calls
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner", TTL: 30 * time.Second}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	p, ctx := newPair(t), t.Context()
	lease, err := p.locker.TryAcquire(ctx, request("job", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.locker.Renew(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if err := p.locker.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	got, want := p.taken(), []string{"new acquire", "new release", "new renew", "old acquire", "old release", "old renew"}
	if !slices.Equal(slices.Sorted(slices.Values(got)), want) || !slices.Equal(got[:2], []string{"old acquire", "new acquire"}) ||
		!slices.Equal(got[4:], []string{"new release", "old release"}) {
		t.Errorf("calls %v, want %v", got, want)
	}
}

// A refused acquire leaves neither lock behind, and does not touch the new lock if the old one is held.
func TestRefused(t *testing.T) {
	t.Parallel()
	p, ctx := newPair(t), t.Context()
	if _, err := p.old.Locker().TryAcquire(ctx, request("job", "of an old program")); err != nil {
		t.Fatal(err)
	}
	var held *driver.HeldError
	if _, err := p.locker.TryAcquire(ctx, request("job", "1")); !errors.As(err, &held) || held.Record.Owner != "owner" ||
		held.Record.Token != 0 {
		t.Errorf("the old lock is held: %v", err)
	}
	if got := p.taken(); !slices.Equal(got, []string{"old acquire"}) {
		t.Errorf("calls %v", got)
	}
	if _, err := p.new.Locker().TryAcquire(ctx, request("other", "of a new program")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.locker.TryAcquire(ctx, request("other", "2")); !errors.As(err, &held) || !held.Record.Revision.IsZero() {
		t.Errorf("the new lock is held: %v, with a revision that could take over the new lock alone", err)
	}
	if r, err := p.old.Locker().Inspect(ctx, "other"); err != nil || r.State != driver.StateFree {
		t.Errorf("the old lock stays %v (%v)", r.State, err)
	}
	p.recorder.set("release", errors.New("no answer"))
	if _, err := p.locker.TryAcquire(ctx, request("other", "3")); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("the old lock could not be released: %v, want an unknown outcome, for which Release is called", err)
	}
}

// Whichever of the two locks is lost: the hold ends at the next renewal, both locks are released,
// and a transient failure ends nothing.
func TestLossOfEither(t *testing.T) {
	t.Parallel()
	for which, lose := range map[string]func(*pair, string){
		"old": func(p *pair, name string) { p.old.Remove(name) },
		"new": func(p *pair, name string) { p.new.Remove(name) },
	} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				h := locktest.MustLock(t, locktest.NewClient(t, p.locker), "job")
				p.recorder.set("renew", errors.New("no answer"))
				time.Sleep(15 * time.Second)
				if err := h.Err(); err != nil {
					t.Fatalf("a failed renewal is a loss: %v", err)
				}
				p.recorder.mu.Lock()
				delete(p.recorder.fail, "renew")
				p.recorder.mu.Unlock()
				time.Sleep(time.Minute)
				if err := h.Err(); err != nil {
					t.Fatalf("the lock is lost: %v", err)
				}
				lose(p, "job")
				time.Sleep(15 * time.Second)
				if !errors.Is(h.Err(), holdfast.ErrLost) {
					t.Errorf("the %s lock is lost, but not the hold: %v", which, h.Err())
				}
				if err := h.Release(t.Context()); err != nil && !errors.Is(err, holdfast.ErrLost) {
					t.Error(err)
				}
				for name, store := range map[string]*memory.Store{"old": p.old, "new": p.new} {
					if r, err := store.Locker().Inspect(t.Context(), "job"); err != nil || r.State != driver.StateFree {
						t.Errorf("the %s lock stays %v (%v)", name, r.State, err)
					}
				}
			})
		})
	}
}

// An old lock that is held is asked for at the poll interval, not more often and not more rarely:
// nothing reports its release.
func TestWaitingForTheOldLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		l := p.old.Locker()
		lease, err := l.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("old"), TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		client := locktest.NewClient(t, p.locker)
		got := make(chan error, 1)
		go func() {
			h, err := client.Lock(t.Context(), "job")
			if err == nil {
				err = h.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(time.Minute)
		n := len(p.taken())
		polls := int(time.Minute / p.locker.Info().Limits.Poll)
		if least, most := polls/5, polls*2; n < least || n > most {
			t.Errorf("%d requests in a minute, want %d to %d", n, least, most)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if waited, most := time.Since(released), 5*p.locker.Info().Limits.Poll; waited > most {
			t.Errorf("the lock is taken %v after its release, want at most %v", waited, most)
		}
	})
}

func TestOldNames(t *testing.T) {
	t.Parallel()
	p := newPair(t, migrating.WithOldName(func(name string) string {
		if name == "new only" {
			return ""
		}
		return "old/" + name
	}))
	for name, calls := range map[string]int{"job": 6, "new only": 3} {
		ctx := t.Context()
		lease, err := p.locker.TryAcquire(ctx, request(name, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.locker.Renew(ctx, lease); err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{name, "old/" + name} {
			want := driver.StateFree
			if n == "old/job" {
				want = driver.StateHeld
			}
			if r, err := p.old.Locker().Inspect(ctx, n); err != nil || r.State != want {
				t.Errorf("the old lock %q is %v (%v)", n, r.State, err)
			}
		}
		if err := p.locker.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
		if got := p.taken(); len(got) != calls {
			t.Errorf("%s: calls %v", name, got)
		}
	}
}

// What the documentation of WithOldName says: names that share an old lock exclude each other, also in LockAll and with slots.
func TestNamesThatShareAnOldLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked sync.Map
		p := newPair(t, migrating.WithOldName(func(name string) string {
			asked.Store(name, true)
			return "old"
		}))
		client := locktest.NewClient(t, p.locker, holdfast.WithSlots(2))
		hold := locktest.MustLock(t, client, "job")
		if _, err := client.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("another slot: %v", err)
		}
		ctx, cancel := context.WithTimeout(hold.Context(), time.Hour)
		defer cancel()
		if err := client.Do(ctx, "other", func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nested: %v", err)
		}
		if err := hold.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := locktest.NewClient(t, p.locker).LockAll(ctx, []string{"job", "other"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("LockAll: %v", err)
		}
		for _, name := range []string{"job", "job#2", "other"} {
			if _, is := asked.Load(name); !is {
				t.Errorf("the function was not asked for %q", name)
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	l := memory.NewStore().Locker()
	for what, got := range map[string]func() (*migrating.Locker, error){
		"without a Locker":  func() (*migrating.Locker, error) { return migrating.New(nil, migrating.FromLocker(l)) },
		"an old nil Locker": func() (*migrating.Locker, error) { return migrating.New(l, migrating.FromLocker(nil)) },
		"without a lock":    func() (*migrating.Locker, error) { return migrating.New(l, nil) },
		"a nil option":      func() (*migrating.Locker, error) { return migrating.New(l, migrating.FromLocker(l), nil) },
		"a nil function": func() (*migrating.Locker, error) {
			return migrating.New(l, migrating.FromLocker(l), migrating.WithOldName(nil))
		},
		"without common TTL": func() (*migrating.Locker, error) { return migrating.New(l, short{migrating.FromLocker(l)}) },
	} {
		if _, err := got(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// short is an old lock with TTLs that no other has.
type short struct{ migrating.Old }

func (short) Info() driver.Info {
	return driver.Info{Limits: driver.Limits{MinTTL: 1, MaxTTL: 2 * time.Nanosecond, TTLStep: 1}}
}

// A request for the new lock that was not sent leaves the old one taken: the outcome is unknown, and the lease ID frees it.
func TestNewLockThatWasNotSent(t *testing.T) {
	old, store := memory.NewStore(), memory.NewStore()
	unsent := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if call.Method == driver.MethodTryAcquire {
			return driver.Answer{Err: &driver.OpError{Op: "acquire", Backend: "memory", Name: call.Request.Name,
				Err: errors.New("connection refused"), NotSent: true}}
		}
		return next(ctx, call)
	})
	l := newLocker(t, unsent, migrating.FromLocker(old.Locker()))
	req := driver.Request{Name: "job", ID: driver.NewLeaseID("id"), Owner: "o", TTL: time.Minute}
	_, err := l.TryAcquire(t.Context(), req)
	if driver.NotSent(err) || driver.OutcomeKnown(err) || err.Error() != `holdfast: acquire "job" on memory: connection refused` {
		t.Errorf("%v: not sent: %v, although the old lock is taken", err, driver.NotSent(err))
	}
	if !locktest.IsHeld(t, old, "job") {
		t.Error("the old lock is free")
	}
	if err := l.Release(t.Context(), driver.Lease{Name: "job", ID: req.ID}); err != nil || locktest.IsHeld(t, old, "job") {
		t.Errorf("the release by ID leaves the old lock held: %v", err)
	}
}
