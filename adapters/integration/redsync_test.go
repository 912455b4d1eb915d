package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	original "github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/redsync"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// mutex is what programs use of a redsync mutex.
type mutex interface {
	Name() string
	Until() time.Time
	Lock() error
	LockContext(ctx context.Context) error
	TryLock() error
	TryLockContext(ctx context.Context) error
	Unlock() (bool, error)
	UnlockContext(ctx context.Context) (bool, error)
	Extend() (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	Valid() (bool, error)
	ValidContext(ctx context.Context) (bool, error)
}

var (
	_ mutex = (*original.Mutex)(nil)
	_ mutex = (*redsync.Mutex)(nil)
)

const expiry = 2 * time.Second

// library is redsync, or the adapter of its shape.
type library struct {
	mutex      func() mutex // of another process each, with three tries 50 ms apart
	isTaken    func(error) bool
	errExpired error
	errFailed  error
}

func libraries(t *testing.T) map[string]library {
	server := miniredis.RunT(t)
	ctx := t.Context()
	go func() { // the server's keys expire only when it is told that time has passed
		for begin := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			server.FastForward(time.Since(begin))
			begin = time.Now()
		}
	}()
	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", server.Addr())
	}}
	t.Cleanup(func() { _ = pool.Close() })
	store := memory.NewStore()
	return map[string]library{
		"redsync": {
			mutex: func() mutex {
				return original.New(redigo.NewPool(pool)).NewMutex("report", original.WithExpiry(expiry), original.WithTries(3),
					original.WithRetryDelay(50*time.Millisecond))
			},
			isTaken:    func(err error) bool { var taken *original.ErrTaken; return errors.As(err, &taken) },
			errExpired: original.ErrLockAlreadyExpired, errFailed: original.ErrFailed,
		},
		"the adapter": {
			mutex: func() mutex {
				return redsync.New(newClient(t, store)).NewMutex("report", redsync.WithExpiry(expiry), redsync.WithTries(3),
					redsync.WithRetryDelay(50*time.Millisecond))
			},
			isTaken:    func(err error) bool { var taken *redsync.ErrTaken; return errors.As(err, &taken) },
			errExpired: redsync.ErrLockAlreadyExpired, errFailed: redsync.ErrFailed,
		},
	}
}

// The adapter does what redsync does.
func TestRedsyncShape(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, func(t *testing.T) {
			ctx, first, second := t.Context(), lib.mutex(), lib.mutex()
			want := func(what string, want bool) func(bool, error) {
				t.Helper()
				return func(got bool, err error) {
					t.Helper()
					if got != want || want && err != nil {
						t.Errorf("%s: %t, %v", what, got, err)
					}
				}
			}
			taken := func(what string, err error) {
				t.Helper()
				if !lib.isTaken(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			must := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			want("Valid before Lock", false)(first.ValidContext(ctx))
			must("Lock", first.LockContext(ctx))
			if left := time.Until(first.Until()); left < expiry*9/10 || left > expiry || first.Name() != "report" {
				t.Errorf("%s is locked for %v", first.Name(), left)
			}
			taken("TryLock of a lock that is held", second.TryLockContext(ctx))
			begin := time.Now()
			taken("Lock of a lock that is held", second.LockContext(ctx))
			if waited := time.Since(begin); waited < 100*time.Millisecond || waited > time.Second {
				t.Errorf("Lock waited for %v", waited)
			}
			want("Valid of the other", false)(second.ValidContext(ctx))
			want("Extend of the other", false)(second.ExtendContext(ctx))
			want("Unlock of the other", false)(second.UnlockContext(ctx))
			for range 8 { // longer than the expiry
				time.Sleep(expiry / 4)
				want("Extend", true)(first.ExtendContext(ctx))
			}
			taken("TryLock of a lock that was extended", second.TryLock())
			want("Valid", true)(first.Valid())
			want("Unlock", true)(first.Unlock())
			want("Valid after Unlock", false)(first.ValidContext(ctx))
			ok, err := first.UnlockContext(ctx)
			if ok || !errors.Is(err, lib.errExpired) {
				t.Errorf("second Unlock: %t, %v", ok, err)
			}

			must("TryLock of a free lock", second.TryLock())
			time.Sleep(expiry + 200*time.Millisecond)
			want("Valid after the expiry", false)(second.ValidContext(ctx))
			want("Extend after the expiry", false)(second.Extend())
			must("Lock after the expiry", first.Lock())
			want("Unlock of an expired lock that another has", false)(second.Unlock())
			want("Valid", true)(first.ValidContext(ctx))

			canceled, cancel := context.WithCancel(ctx)
			go func() { time.Sleep(20 * time.Millisecond); cancel() }()
			if err := second.LockContext(canceled); !errors.Is(err, lib.errFailed) {
				t.Errorf("Lock with a context that ends: %v", err)
			}
			want("Unlock", true)(first.UnlockContext(ctx))
		})
	}
}

// redsyncProgram takes the lock, and extends it until the process is killed.
func redsyncProgram(client *holdfast.Client, journal journal) error {
	mutex := redsync.New(client).NewMutex("report", redsync.WithExpiry(processTTL), redsync.WithTries(100_000))
	if err := mutex.Lock(); err != nil {
		return err
	}
	if err := journal.write(mutex.Context(), "begin"); err != nil {
		return err
	}
	ctx := mutex.Context()
	for range time.Tick(processTTL / 3) {
		if _, err := mutex.Extend(); err != nil || ctx.Err() != nil {
			return errors.Join(err, journal.write(ctx, "lost")) // redsync's own way to see a loss is Extend
		}
	}
	return nil
}

func TestRedsyncKilledProcess(t *testing.T) {
	t.Parallel()
	takesOver(t, "redsync")
}
