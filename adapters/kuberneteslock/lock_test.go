package kuberneteslock

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// faulty is a Locker whose calls fail, or are answered late, as a test says.
type faulty struct {
	driver.Locker
	mu       sync.Mutex
	acquired error         // instead of the answer to an acquire
	renewed  error         // instead of a renewal
	late     time.Duration // the answers to acquires and renewals
	arrives  time.Duration // if positive, releases fail, and arrive so much later
	ids      map[driver.LeaseID]bool
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	f.mu.Lock()
	if f.ids == nil {
		f.ids = map[driver.LeaseID]bool{}
	}
	f.ids[req.ID] = true
	late, failure := f.late, f.acquired
	f.mu.Unlock()
	lease, err := f.Locker.TryAcquire(ctx, req)
	time.Sleep(late)
	if failure != nil {
		return driver.Lease{}, failure
	}
	return lease, err
}

func (f *faulty) Renew(ctx context.Context, l driver.Lease) (driver.Lease, error) {
	f.mu.Lock()
	late, failure := f.late, f.renewed
	f.mu.Unlock()
	if failure != nil {
		return driver.Lease{}, failure
	}
	renewed, err := f.Locker.Renew(ctx, l)
	time.Sleep(late)
	return renewed, err
}

func (f *faulty) Release(ctx context.Context, l driver.Lease) error {
	f.mu.Lock()
	arrives := f.arrives
	f.mu.Unlock()
	if arrives == 0 {
		return f.Locker.Release(ctx, l)
	}
	time.AfterFunc(arrives, func() { _ = f.Locker.Release(context.WithoutCancel(ctx), l) })
	return errors.New("no answer")
}

// without is a Locker of a backend that stores no data.
type without struct{ driver.Locker }

func (without) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func newLock(t *testing.T, locker driver.Locker, identity string) *Lock {
	t.Helper()
	lock, err := New(locker, "operator", identity)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// record is what an elector writes to acquire and to renew.
func record(identity string) resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now}
}

func get(t *testing.T, l *Lock) (*resourcelock.LeaderElectionRecord, []byte) {
	t.Helper()
	record, raw, err := l.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return record, raw
}

func create(t *testing.T, l *Lock) {
	t.Helper()
	if _, _, err := l.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("Get without a record: %v", err)
	}
	if err := l.Create(t.Context(), record(l.Identity())); err != nil {
		t.Fatal(err)
	}
}

func TestInvalidArguments(t *testing.T) {
	locker := memory.NewStore().Locker()
	for what, arguments := range map[string]struct {
		locker         driver.Locker
		name, identity string
	}{
		"no locker": {nil, "operator", "a"}, "no name": {locker, "", "a"}, "no identity": {locker, "operator", ""},
		"long identity": {locker, "operator", strings.Repeat("a", 1<<20)}, "no data": {without{locker}, "operator", "a"},
	} {
		if _, err := New(arguments.locker, arguments.name, arguments.identity); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Update is a compare-and-set against the record that Get returned.
func TestUpdateComparesAndSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		a, b, c := newLock(t, store.Locker(), "a"), newLock(t, store.Locker(), "b"), newLock(t, store.Locker(), "c")
		for _, other := range []*Lock{b, c} {
			if _, _, err := other.Get(ctx); !apierrors.IsNotFound(err) {
				t.Errorf("Get without a record: %v", err)
			}
		}
		create(t, a)
		if err := b.Create(ctx, record("b")); !apierrors.IsConflict(err) || b.Token() != 0 {
			t.Errorf("Create after another's: %v", err)
		}
		if err := a.Update(ctx, record("")); err != nil || a.Token() != 0 {
			t.Errorf("release: %v", err)
		}
		// The lock is free again, but c has not seen that a led.
		if err := c.Create(ctx, record("c")); !apierrors.IsConflict(err) || c.Token() != 0 {
			t.Errorf("Create of a record that exists: %v", err)
		}
		if found, _ := get(t, c); found.HolderIdentity != "" {
			t.Errorf("after the release: %+v", found)
		}
		changed := record("c")
		changed.LeaderTransitions = 7
		if err := c.Update(ctx, changed); err != nil || c.Token() == 0 {
			t.Errorf("Update of what Get returned: %v", err)
		}
		if found, _ := get(t, b); found.HolderIdentity != "c" || found.LeaderTransitions != 7 || found.LeaseDurationSeconds != 15 {
			t.Errorf("the record: %+v", found)
		}
	})
}

// The bytes change with each renewal, and only then.
func TestRawRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		a, b := newLock(t, store.Locker(), "a"), newLock(t, store.Locker(), "b")
		create(t, a)
		_, before := get(t, b)
		if _, again := get(t, b); !bytes.Equal(before, again) {
			t.Error("the bytes changed without a renewal")
		}
		time.Sleep(10 * time.Millisecond) // within the same second
		if err := a.Update(ctx, record("a")); err != nil {
			t.Fatal(err)
		}
		if _, after := get(t, b); bytes.Equal(before, after) {
			t.Error("the bytes did not change with the renewal")
		}
	})
}

// The backend judges expiry: another is refused until the lease has ended, and needs no time to
// observe after that.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		a, b := newLock(t, store.Locker(), "a"), newLock(t, store.Locker(), "b")
		create(t, a)
		get(t, b)
		time.Sleep(14 * time.Second)
		if err := b.Update(ctx, record("b")); !apierrors.IsConflict(err) {
			t.Errorf("Update before the expiry: %v", err)
		}
		time.Sleep(2 * time.Second)
		if found, _ := get(t, b); found.HolderIdentity != "" {
			t.Errorf("after the expiry: %+v", found)
		}
		// a can still renew, as nobody has taken the lease.
		if found, _ := get(t, a); found.HolderIdentity != "a" {
			t.Errorf("after the expiry, the leader sees %+v", found)
		}
		before := a.Token()
		if err := b.Update(ctx, record("b")); err != nil || b.Token() <= before {
			t.Errorf("Update after the expiry: %v; token %d after %d", err, b.Token(), before)
		}
		if err := a.Update(ctx, record("a")); !apierrors.IsConflict(err) || a.Token() != 0 {
			t.Errorf("renewal after the loss: %v", err)
		}
	})
}

// After a loss the lock does not lead again until its elector must have stopped.
func TestLossEndsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		a := newLock(t, store.Locker(), "a")
		create(t, a)
		if err := store.Locker().Capabilities().Breaker.BreakNow(ctx, "operator", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(ctx, record("a")); !apierrors.IsConflict(err) {
			t.Errorf("renewal after the loss: %v", err)
		}
		for range 29 {
			get(t, a)
			if err := a.Update(ctx, record("a")); err == nil || apierrors.IsConflict(err) {
				t.Fatalf("acquisition soon after the loss: %v", err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		get(t, a)
		if err := a.Update(ctx, record("a")); err != nil {
			t.Errorf("acquisition later: %v", err)
		}
	})
}

// An acquire whose answer was lost is repeated with the same ID, so it does not keep the
// candidate waiting for its own lease.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := &faulty{Locker: memory.NewStore().Locker(), acquired: errors.New("no answer")}
		a := newLock(t, locker, "a")
		if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if err := a.Create(t.Context(), record("a")); !errors.Is(err, locker.acquired) {
			t.Fatalf("Create: %v", err)
		}
		locker.acquired = nil
		if found, _ := get(t, a); found.HolderIdentity != "" {
			t.Errorf("while the outcome is unknown: %+v", found)
		}
		if err := a.Update(t.Context(), record("a")); err != nil || len(locker.ids) != 1 {
			t.Errorf("the next attempt: %v; %d IDs", err, len(locker.ids))
		}
		if err := a.Update(t.Context(), record("")); err != nil {
			t.Fatal(err)
		}
		get(t, a)
		if err := a.Update(t.Context(), record("a")); err != nil || len(locker.ids) != 2 {
			t.Errorf("the next acquisition: %v; %d IDs", err, len(locker.ids))
		}
	})
}

// An answer that comes late is a failure, although the lease was renewed: the elector counts
// from the answer.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := &faulty{Locker: memory.NewStore().Locker()}
		a := newLock(t, locker, "a")
		create(t, a)
		locker.late = 3 * time.Second
		if err := a.Update(t.Context(), record("a")); err == nil || apierrors.IsConflict(err) || !strings.Contains(err.Error(), "2.5s") {
			t.Errorf("Update: %v", err)
		}
		locker.late = 2 * time.Second
		if err := a.Update(t.Context(), record("a")); err != nil {
			t.Errorf("Update: %v", err)
		}
		if err := a.Update(t.Context(), record("")); err != nil {
			t.Fatal(err)
		}
		get(t, a)
		locker.late = 3 * time.Second
		if err := a.Update(t.Context(), record("a")); err == nil {
			t.Error("a late answer to the acquisition, and to the renewal after it, was taken for a success")
		}
	})
}

// A lease whose release was sent is not renewed: the release may arrive late. The next lease has
// another ID, so the late release does not end it.
func TestReleaseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := &faulty{Locker: memory.NewStore().Locker(), arrives: 20 * time.Second} // after the lease has ended
		a := newLock(t, locker, "a")
		create(t, a)
		first := a.Token()
		if err := a.Update(t.Context(), record("")); err == nil || a.Token() != 0 {
			t.Errorf("a release without an answer: %v; token %d", err, a.Token())
		}
		if found, _ := get(t, a); found.HolderIdentity == "a" || found.HolderIdentity == "" {
			t.Errorf("while the release is under way: %+v", found)
		}
		if err := a.Update(t.Context(), record("a")); !apierrors.IsConflict(err) || a.Token() != 0 {
			t.Errorf("Update while the release is under way: %v; token %d", err, a.Token())
		}
		time.Sleep(16 * time.Second)
		get(t, a)
		if err := a.Update(t.Context(), record("a")); err != nil || a.Token() <= first {
			t.Errorf("Update after the expiry: %v; token %d after %d", err, a.Token(), first)
		}
		time.Sleep(6 * time.Second) // the late release has arrived
		if err := a.Update(t.Context(), record("a")); err != nil {
			t.Errorf("renewal after the late release: %v", err)
		}
	})
}

// A Locker over two locks may have sent a release with the ID itself. Then the next request has another ID. Otherwise,
// after an unknown outcome, it has the same.
func TestIDThatTheLockerReleased(t *testing.T) {
	noAnswer := errors.New("no answer")
	for what, c := range map[string]struct {
		err error
		ids int
	}{
		"unknown outcome":  {noAnswer, 1},
		"and it released":  {driver.WithIDReleased(noAnswer), 2},
		"known, it failed": {driver.Denied(errors.New("read-only")), 2},
	} {
		locker := &faulty{Locker: memory.NewStore().Locker(), acquired: c.err}
		a := newLock(t, locker, "a")
		if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		for range 2 {
			if err := a.Create(t.Context(), record("a")); !errors.Is(err, c.err) {
				t.Errorf("%s: Create: %v", what, err)
			}
		}
		if len(locker.ids) != c.ids {
			t.Errorf("%s: %d IDs for two requests, want %d", what, len(locker.ids), c.ids)
		}
	}
}

// A candidate that could not store its record has sent a release, so it asks with another ID.
func TestReleaseOfFailedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locker := &faulty{Locker: store.Locker()}
		a, b := newLock(t, locker, "a"), newLock(t, store.Locker(), "b")
		if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		create(t, b)
		if err := b.Update(t.Context(), record("")); err != nil {
			t.Fatal(err)
		}
		locker.arrives = 20 * time.Second
		if err := a.Create(t.Context(), record("a")); !apierrors.IsConflict(err) || len(locker.ids) != 1 {
			t.Fatalf("Create of a record that exists: %v; %d IDs", err, len(locker.ids))
		}
		time.Sleep(16 * time.Second)
		get(t, a)
		if err := a.Update(t.Context(), record("a")); err != nil || len(locker.ids) != 2 {
			t.Errorf("Update: %v; %d IDs", err, len(locker.ids))
		}
		time.Sleep(6 * time.Second) // the late release has arrived
		if err := a.Update(t.Context(), record("a")); err != nil {
			t.Errorf("renewal after the late release: %v", err)
		}
	})
}

// The lease of an earlier process with the same identity is not this one's.
func TestSameIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		create(t, newLock(t, store.Locker(), "pod-0"))
		restarted := newLock(t, store.Locker(), "pod-0")
		if found, _ := get(t, restarted); found.HolderIdentity == "pod-0" || !strings.HasPrefix(found.HolderIdentity, "pod-0") {
			t.Errorf("the restarted process sees %+v", found)
		}
		if err := restarted.Update(t.Context(), record("pod-0")); !apierrors.IsConflict(err) {
			t.Errorf("Update: %v", err)
		}
		if err := restarted.Update(t.Context(), record("")); err != nil {
			t.Errorf("release of what it does not have: %v", err)
		}
		if found, _ := get(t, restarted); found.HolderIdentity == "" {
			t.Error("the lease of the earlier process was released")
		}
	})
}

// The backend's clock stepped back, so a dead leader's lease seems to run for long.
func TestClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step time.Duration
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(step) }))
		a, b := newLock(t, store.Locker(), "a"), newLock(t, store.Locker(), "b")
		create(t, a)
		step = -time.Hour
		get(t, b)
		time.Sleep(14 * time.Second)
		get(t, b)
		if err := b.Update(t.Context(), record("b")); !apierrors.IsConflict(err) {
			t.Errorf("Update before the holder's TTL was observed: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := b.Update(t.Context(), record("b")); err != nil {
			t.Errorf("Update after the holder's TTL: %v", err)
		}
	})
}

// A lock with data of another program is refused, and left alone.
func TestForeignData(t *testing.T) {
	locker := memory.NewStore().Locker()
	lease, err := locker.TryAcquire(t.Context(), driver.Request{Name: "operator",
		ID: driver.NewLeaseID("00000000-0000-4000-8000-000000000001"), TTL: time.Minute, Data: []byte("not JSON")})
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if _, _, err := newLock(t, locker, "a").Get(t.Context()); err == nil || apierrors.IsNotFound(err) ||
		!strings.Contains(err.Error(), "another program") {
		t.Errorf("Get: %v", err)
	}
}
