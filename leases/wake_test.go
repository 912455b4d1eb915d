package leases_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// hintedLocker is a Locker with a Queue whose waiters the test wakes.
type hintedLocker struct {
	holdfast.Locker
	locktest.Unordered
	began                bool // waking, an hour ago
	onAcquire, onRefusal func(n int)

	mu   sync.Mutex
	wake func(driver.Wakeup)
	at   []time.Time // of the acquires
	asks []driver.Request
}

func (l *hintedLocker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l.mu.Lock()
	l.at, l.asks = append(l.at, time.Now()), append(l.asks, req)
	n := len(l.at)
	l.mu.Unlock()
	if l.onAcquire != nil {
		l.onAcquire(n)
	}
	lease, err := l.Locker.TryAcquire(ctx, req)
	if err != nil && l.onRefusal != nil {
		l.onRefusal(n)
	}
	return lease, err
}

func (l *hintedLocker) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake = wake; l.began {
		wake(driver.Wakeup{Kind: driver.WakingBegan, Ago: time.Hour})
	}
	return func() {}
}

func (l *hintedLocker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Waker: l, Queue: l}
}

// A wake-up that comes during an attempt, before or after the backend has refused that, is remembered. If it is a hint that says that
// another waiter comes first, the next attempt comes when the turn of this one begins, else at once.
func TestManagerHintForTheSecondDuringAnAttempt(t *testing.T) {
	for _, turn := range []time.Duration{0, driver.Turn(1)} {
		for _, refused := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				holder := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
				l := &hintedLocker{Locker: store.Locker()}
				hint := func(n int) {
					if n == 2 {
						time.Sleep(time.Millisecond)
						if refused {
							locktest.Release(t, holder)
						}
						l.wake(driver.Wakeup{After: turn})
					}
				}
				if refused {
					l.onRefusal = hint
				} else {
					l.onAcquire = hint
				}
				m := locktest.NewManager(t, locktest.NewClient(t, l))
				locktest.MustAdd(t, m, "job")
				synctest.Wait()
				l.wake(driver.Wakeup{})
				time.Sleep(time.Second)
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.at) < 3 {
					t.Fatalf("%d attempts", len(l.at))
				}
				if got, want := l.at[2].Sub(l.at[1]), time.Millisecond+turn; got != want {
					t.Errorf("a hint for %v during an attempt, refused: %v: the next attempt came after %v, want %v", turn, refused, got, want)
				}
				if _, ok := m.Hold("job"); ok != refused {
					t.Errorf("a hint for %v, released after the refusal: %v: held: %v", turn, refused, ok)
				}
			})
		}
	}
}

// A name that is removed or granted leaves the backend's queue: the positions of the other names do not last longer because of it.
func TestManagerRemovedNamesLeaveTheQueue(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			names, taken := locktest.Names("n", 1000), []string{"last"}
			if !granted {
				taken = append(taken, names...)
			}
			locktest.MustAdd(t, locktest.NewManager(t, locktest.NewClient(t, store.Locker())), taken...)
			time.Sleep(time.Second)
			l := &hintedLocker{Locker: store.Locker()}
			m := locktest.NewManager(t, locktest.NewClient(t, l))
			locktest.MustAdd(t, m, names...)
			if time.Sleep(time.Second); !granted {
				locktest.MustRemove(t, m, names...)
			}
			locktest.MustAdd(t, m, "last")
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if got := l.asks[len(l.asks)-1]; got.Name != "last" || got.QueueFor == 0 || got.QueueFor > 2*time.Minute {
				t.Errorf("%q has a position for %v, as if the other names, granted: %v, still waited", got.Name, got.QueueFor, granted)
			}
		})
	}
}

// curiousHook uses the manager, against the rules for hooks.
type curiousHook struct {
	telemetry.Ignore
	manager func() *leases.LeaseManager
	calls   chan struct{}
}

func (h *curiousHook) Begin(ctx context.Context, op telemetry.Operation) context.Context {
	h.use(op)
	return ctx
}

func (h *curiousHook) End(_ context.Context, op telemetry.Operation, _ time.Duration, _ error) {
	h.use(op)
}

func (h *curiousHook) use(op telemetry.Operation) {
	if m := h.manager(); m != nil && op.Kind != telemetry.Call {
		m.Leases()
		h.calls <- struct{}{}
	}
}

// The manager calls no hook while its mutex is held.
func TestManagerCallsHooksWithoutItsMutex(t *testing.T) {
	store := memory.NewStore()
	locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "taken")
	var manager *leases.LeaseManager
	hook := &curiousHook{manager: func() *leases.LeaseManager { return manager }, calls: make(chan struct{}, 1000)}
	client, err := holdfast.New(store.Locker(), holdfast.WithHook(hook))
	if err != nil {
		t.Fatal(err)
	}
	if manager, err = leases.New(client); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		err := manager.Add("job", "taken")
		for range 3 { // both acquires begin, and one ends, or the hold begins
			<-hook.calls
		}
		if err == nil {
			err = manager.Remove(context.Background(), "job", "taken")
		}
		if err == nil {
			err = client.Shutdown(context.Background())
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a hook that uses the manager waits for the manager's mutex")
	}
}

// Managers that add the same names in the same order do not begin with the same ones.
func TestManagersBeginWithDifferentNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := map[string]bool{}
		names := locktest.Names("n", 1000)
		for range 3 {
			l := &hintedLocker{Locker: memory.New()}
			one := leases.WithParallel(1) // of requests under way together, any could come first
			locktest.MustAdd(t, locktest.NewManager(t, locktest.NewClient(t, l), one), names...)
			synctest.Wait()
			l.mu.Lock()
			first[l.asks[0].Name] = true
			l.mu.Unlock()
		}
		if len(first) == 1 {
			t.Errorf("all three began with %v", first)
		}
		if names[0] != "n00000" || names[999] != "n00999" {
			t.Error("Add has changed the caller's slice")
		}
	})
}

// Readers of the manager's own Client that follow one another do not keep it out, whether they try or wait.
func TestReadersOfTheClientKeepNoManagerOut(t *testing.T) {
	for how, read := range map[string]func(*holdfast.Client, context.Context, string, ...holdfast.Option) (*holdfast.Hold, error){
		"they try": (*holdfast.Client).TryLock, "they wait": (*holdfast.Client).Lock,
	} {
		locktest.Bubble(t, how, func(t *testing.T) {
			c := locktest.NewClient(t, memory.NewStore().Locker())
			last := locktest.MustTryLock(t, c, "cache", holdfast.WithShared())
			m := locktest.NewManager(t, c)
			locktest.MustAdd(t, m, "cache")
			for range 600 { // each reader begins before the one before it ends
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				next, err := read(c, ctx, "cache", holdfast.WithShared())
				cancel()
				if last != nil {
					locktest.Release(t, last)
				}
				if last = next; err != nil {
					last = nil
				}
				if synctest.Wait(); last == nil {
					if _, held := m.Hold("cache"); held {
						return
					}
				}
			}
			t.Error("the manager has waited for ten minutes")
		})
	}
}
