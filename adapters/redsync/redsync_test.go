package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/redsync"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func Example() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	rs := redsync.New(client)
	mutex := rs.NewMutex("report", redsync.WithExpiry(time.Minute))
	if err := mutex.LockContext(ctx); err != nil {
		log.Fatal(err)
	}
	var taken *redsync.ErrTaken
	fmt.Println("taken:", errors.As(rs.NewMutex("report").TryLockContext(ctx), &taken))
	fmt.Println(mutex.ExtendContext(ctx))
	fmt.Println(mutex.UnlockContext(ctx))
	_ = client.Shutdown(ctx)
	// Output:
	// taken: true
	// true <nil>
	// true <nil>
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mutex := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(time.Minute))
		other := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report")
		if err := mutex.TryLock(); err != nil {
			t.Fatal(err)
		}
		ctx, token := mutex.Context(), mutex.Token()
		time.Sleep(50 * time.Second)
		if ok, err := mutex.Extend(); !ok || err != nil {
			t.Errorf("Extend: %t, %v", ok, err)
		}
		time.Sleep(59 * time.Second)
		if ok, err := mutex.Valid(); !ok || err != nil {
			t.Errorf("Valid before the expiry that was extended: %t, %v", ok, err)
		}
		if err := other.TryLock(); ctx.Err() != nil || !errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("before the expiry: %v, TryLock of another: %v", context.Cause(ctx), err)
		}
		time.Sleep(1001 * time.Millisecond)
		if ok, _ := mutex.Valid(); ok || ctx.Err() == nil || mutex.Token() != 0 {
			t.Errorf("after the expiry: valid %t, context %v, token %d", ok, ctx.Err(), mutex.Token())
		}
		if err := other.TryLock(); err != nil || other.Token() <= token {
			t.Errorf("another after the expiry: %v, token %d after %d", err, other.Token(), token)
		}
		if ok, err := mutex.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock: %t, %v", ok, err)
		}
		if ok, _ := other.Valid(); !ok {
			t.Error("a late Unlock released the next holder's lock")
		}
	})
}

// LockContext waits for as long as the delays between the tries, and not longer than its context,
// whatever their sum is. It asks for a delay when that begins.
func TestLockContextWaits(t *testing.T) {
	for what, c := range map[string]struct {
		tries int
		delay time.Duration
		limit time.Duration // of the context
		want  time.Duration
		cause error
	}{
		"tries":                    {5, time.Second, time.Hour, 4 * time.Second, holdfast.ErrHeld},
		"one try":                  {1, time.Second, time.Hour, 0, holdfast.ErrHeld},
		"no delay":                 {5, 0, time.Hour, 4 * time.Millisecond, holdfast.ErrHeld},
		"context":                  {5, time.Second, 1500 * time.Millisecond, 1500 * time.Millisecond, context.DeadlineExceeded},
		"very many tries":          {math.MaxInt32, 100 * time.Millisecond, time.Minute, time.Minute, context.DeadlineExceeded},
		"very many without delays": {math.MaxInt32, -1, time.Minute, time.Minute, context.DeadlineExceeded},
		"a sum that overflows":     {4, math.MaxInt64 / 2, 24 * time.Hour, 24 * time.Hour, context.DeadlineExceeded},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				if err := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(48*time.Hour)).Lock(); err != nil {
					t.Fatal(err)
				}
				most := 1 + int(c.want/max(c.delay, time.Millisecond))
				mutex := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithTries(c.tries),
					redsync.WithRetryDelayFunc(func(int) time.Duration {
						if most--; most < 0 {
							t.Error("LockContext asks for delays that have not begun")
							runtime.Goexit()
						}
						return c.delay
					}))
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				err := mutex.LockContext(ctx)
				waited := time.Since(began)
				if waited != c.want || !errors.Is(err, redsync.ErrFailed) || !errors.Is(err, c.cause) || errors.Is(err, context.Canceled) {
					t.Errorf("LockContext returned after %v, not %v: %v", waited, c.want, err)
				}
			})
		})
	}
}

// As in redsync, LockContext makes its tries also after errors, except for those that no further try mends.
func TestLockContextAfterErrors(t *testing.T) {
	denied := driver.Errorf("%w: %w", driver.ErrDenied, locktest.ErrInjected)
	for what, c := range map[string]struct {
		tries  int
		fault  error
		until  int // the last request that fails
		want   error
		waited time.Duration // if it fails
	}{
		"the first request":      {3, locktest.ErrInjected, 1, nil, 0},
		"every request":          {3, locktest.ErrInjected, math.MaxInt, locktest.ErrInjected, 2 * time.Second},
		"one try":                {1, locktest.ErrInjected, 1, locktest.ErrInjected, 0},
		"a right is missing":     {3, denied, 1, driver.ErrDenied, 0},
		"the Locker is closed":   {3, driver.ErrClosed, 1, driver.ErrClosed, 0},
		"the backend forbids it": {3, driver.ErrInvalid, 1, driver.ErrInvalid, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := locktest.FaultyClient(t, memory.New(), func(op string, n int, _ holdfast.Lease) (f locktest.Fault) {
					if op == locktest.OpAcquire && n <= c.until {
						f.Refuse = c.fault
					}
					return f
				})
				mutex := redsync.New(client).NewMutex("report", redsync.WithTries(c.tries), redsync.WithRetryDelay(time.Second))
				began := time.Now()
				err := mutex.Lock()
				if waited := time.Since(began); !errors.Is(err, c.want) || err != nil && waited != c.waited {
					t.Errorf("Lock returned after %v: %v", waited, err)
				}
			})
		})
	}
}

// A lock that is released while LockContext waits is acquired.
func TestLockContextAcquires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(10*time.Second))
		second := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithTries(math.MaxInt32))
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := second.Lock(); err != nil || second.Token() <= first.Token() || first.Token() != 0 {
			t.Errorf("Lock: %v; tokens %d and, after its expiry, %d", err, second.Token(), first.Token())
		}
	})
}

func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mutex := redsync.New(locktest.NewClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(time.Minute))
		if err := mutex.Lock(); err != nil {
			t.Fatal(err)
		}
		store.Remove("report")
		<-mutex.Context().Done()
		if cause := context.Cause(mutex.Context()); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
		if ok, err := mutex.Extend(); ok || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("Extend: %t, %v", ok, err)
		}
		if err := mutex.Lock(); err != nil { // without Unlock
			t.Errorf("Lock after the loss: %v", err)
		}
	})
}

func TestUnlockWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		rs := redsync.New(locktest.NewClient(t, store.Locker()))
		mutex := rs.NewMutex("report")
		if err := mutex.LockContext(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if ok, err := mutex.UnlockContext(ctx); !ok || err != nil {
			t.Errorf("Unlock: %t, %v", ok, err)
		}
		if err := rs.NewMutex("report").TryLock(); err != nil {
			t.Errorf("the lock was not released: %v", err)
		}
	})
}

// As in redsync, LockContext and TryLockContext can do without a context.
func TestNilContext(t *testing.T) {
	mutex := redsync.New(locktest.NewClient(t, memory.New())).NewMutex("report", redsync.WithTries(2), redsync.WithRetryDelay(0))
	var none context.Context
	for what, lock := range map[string]func(context.Context) error{"LockContext": mutex.LockContext, "TryLockContext": mutex.TryLockContext} {
		if err := lock(none); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := lock(none); !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("%s of a lock that is held: %v", what, err)
		}
		if ok, err := mutex.Unlock(); !ok || err != nil {
			t.Errorf("Unlock: %t, %v", ok, err)
		}
	}
}

// limited is a Locker with the limits of Azure Blob Storage.
type limited struct{ holdfast.Locker }

func (limited) Info() driver.Info {
	return driver.Info{Limits: driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 100, MaxOwner: 100,
		MaxData: 100}}
}

func TestTTLWithinTheLimits(t *testing.T) {
	for expiry, want := range map[time.Duration]time.Duration{
		8 * time.Second:          15 * time.Second,
		15500 * time.Millisecond: 16 * time.Second,
		time.Hour:                time.Minute,
	} {
		client := locktest.NewClient(t, limited{memory.New()})
		if err := redsync.New(client).NewMutex("report", redsync.WithExpiry(expiry)).Lock(); err != nil {
			t.Fatal(err)
		}
		if r, err := client.Inspect(t.Context(), "report"); err != nil || r.TTL != want {
			t.Errorf("an expiry of %v: %v, %v", expiry, r.TTL, err)
		}
	}
}

func TestInvalidArguments(t *testing.T) {
	client := locktest.NewClient(t, memory.New())
	for what, mutex := range map[string]*redsync.Mutex{
		"nil client":          redsync.New(nil).NewMutex("x"),
		"expiry":              redsync.New(client).NewMutex("x", redsync.WithExpiry(0)),
		"delay":               redsync.New(client).NewMutex("x", redsync.WithRetryDelayFunc(nil)),
		"shared":              redsync.New(client, holdfast.WithShared()).NewMutex("x"),
		"slots":               redsync.New(client, holdfast.WithSlots(2)).NewMutex("x"),
		"name":                redsync.New(client).NewMutex(""),
		"nil option":          redsync.New(client, nil).NewMutex("x"),
		"nil option of mutex": redsync.New(client).NewMutex("x", nil, redsync.WithTries(1)),
		"nil OptionFunc":      redsync.New(client).NewMutex("x", redsync.OptionFunc(nil)),
	} {
		if err := mutex.Lock(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
		if ok, err := mutex.Unlock(); ok || err == nil {
			t.Errorf("%s: Unlock: %t, %v", what, ok, err)
		}
		if mutex.Context().Err() == nil || mutex.Token() != 0 || !mutex.Until().IsZero() {
			t.Errorf("%s: the mutex seems to be locked", what)
		}
	}
}
