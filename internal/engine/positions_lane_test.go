package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A reader that tries does not overtake a writer of its own process that waits, and does not end their position.
func TestReaderThatTriesBesideAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		c, other := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		first := locktest.MustTryLock(t, other, "cache", shared)
		written := make(chan struct{})
		go func() {
			defer close(written)
			h, err := c.Lock(t.Context(), "cache")
			if err != nil {
				t.Error(err)
				return
			}
			_ = h.Release(context.Background())
		}()
		time.Sleep(time.Second)
		if _, err := c.TryLock(t.Context(), "cache", shared); err == nil {
			t.Error("a reader of the writer's own process has overtaken the writer")
			if _, err := other.TryLock(t.Context(), "cache", shared); err == nil {
				t.Error("and the writer has lost its position: a reader of another process overtakes it, too")
			}
		} else if !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		locktest.Release(t, first)
		synctest.Wait()
		select {
		case <-written:
		case <-time.After(time.Second):
			t.Error("the writer waits although the readers before it have gone")
		}
	})
}

// Readers that try again and again starve no writer of their own process.
func TestReadersThatTryStarveNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, shared := locktest.NewClient(t, memory.NewStore().Locker()), holdfast.WithShared()
		last := locktest.MustTryLock(t, c, "cache", shared)
		written := make(chan struct{})
		go func() {
			defer close(written)
			if h, err := c.Lock(t.Context(), "cache"); err == nil {
				_ = h.Release(context.Background())
			}
		}()
		time.Sleep(time.Second)
		for range 600 { // ten minutes; each reader begins before the one before it ends
			if next, err := c.TryLock(t.Context(), "cache", shared); err == nil {
				if last != nil {
					_ = last.Release(t.Context())
				}
				last = next
			} else if last != nil {
				_ = last.Release(t.Context())
				last = nil
			}
			time.Sleep(time.Second)
			select {
			case <-written:
				return
			default:
			}
		}
		t.Error("the writer has waited for ten minutes")
	})
}

// A reader's try that is under way when a writer of its process begins to wait does not end the writer's position.
func TestReaderThatTriedBeforeTheWriterCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		gate, slow := make(chan struct{}), true
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodTryAcquire && call.Request.Mode == driver.Shared && slow {
				<-gate
			}
			return next(ctx, call)
		})
		c, other := locktest.NewClient(t, l), locktest.NewClient(t, store.Locker())
		first := locktest.MustTryLock(t, other, "cache", shared)
		tried := make(chan error, 1)
		go func() {
			h, err := c.TryLock(t.Context(), "cache", shared)
			if err == nil {
				defer func() { _ = h.Release(context.Background()) }()
			}
			tried <- err
		}()
		synctest.Wait() // the request is under way
		written := make(chan struct{})
		go func() {
			defer close(written)
			if h, err := c.Lock(t.Context(), "cache"); err == nil {
				_ = h.Release(context.Background())
			}
		}()
		synctest.Wait() // the writer has a position
		close(gate)
		if err := <-tried; !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the reader's try: %v", err)
		}
		if h, err := other.TryLock(t.Context(), "cache", shared); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a reader of another process has overtaken the writer: %v", err)
			_ = h.Release(t.Context())
		}
		locktest.Release(t, first)
		<-written
	})
}

// A writer gives up, and a reader of its process is granted the lock. The reader of another process behind the writer may join,
// too, and is woken.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		a, b, c := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		locktest.MustTryLock(t, a, "cache", shared)
		ctx, giveUp := context.WithCancel(t.Context())
		go func() { _, _ = b.Lock(ctx, "cache") }()
		synctest.Wait()
		granted := make(chan struct{}, 2)
		for _, reader := range []*holdfast.Client{b, c} { // in b's own queue behind its writer, and behind its position
			go func() {
				if _, err := reader.Lock(t.Context(), "cache", shared); err == nil {
					granted <- struct{}{}
				}
			}()
			synctest.Wait()
		}
		giveUp()
		time.Sleep(time.Second) // longer than waitqueue.LeaveDelay
		if n := len(granted); n != 2 {
			t.Errorf("%d readers have joined within a second after the writer had given up, want 2", n)
		}
	})
}

// A reader that tries does not take the place of a reader of its own process that waits.
func TestReaderThatTriesBesideAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		var slow atomic.Bool
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodTryAcquire && call.Request.QueueFor > 0 && slow.Load() {
				time.Sleep(5 * time.Millisecond) // the way to the server
			}
			return next(ctx, call)
		})
		c, other, third := locktest.NewClient(t, l), locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		held := locktest.MustTryLock(t, other, "cache")
		got := make(chan string, 2)
		var waiting sync.WaitGroup
		wait := func(c *holdfast.Client, who string, opts ...holdfast.Option) {
			waiting.Go(func() {
				h, err := c.Lock(t.Context(), "cache", opts...)
				if err != nil {
					return
				}
				got <- who
				time.Sleep(time.Second)
				_ = h.Release(context.Background())
			})
			synctest.Wait()
		}
		wait(c, "reader", shared) // position 1
		wait(third, "writer")     // position 2
		slow.Store(true)
		locktest.Release(t, held)
		h, err := c.TryLock(t.Context(), "cache", shared)
		if err == nil {
			t.Error("the try was granted in the reader's place")
			time.Sleep(100 * time.Millisecond)
			locktest.Release(t, h)
		}
		if first := <-got; first != "reader" {
			t.Errorf("the %s came first, although the reader had position 1", first)
		}
		waiting.Wait()
	})
}

// A writer gives up, and the one call that leaves its position fails. A reader of the same process waits for the end of that
// position, or until the call has been
// repeated.
func TestReaderBehindAPositionThatWasNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, shared := memory.NewStore(), holdfast.WithShared()
		failed := false
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodLeave && !failed {
				failed = true
				return driver.Answer{Err: errors.New("connection reset")}
			}
			return next(ctx, call)
		})
		c, other := locktest.NewClient(t, l), locktest.NewClient(t, store.Locker())
		locktest.MustTryLock(t, other, "cache", shared)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "cache"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		began := time.Now()
		h, err := c.Lock(t.Context(), "cache", shared)
		if err != nil {
			t.Fatal(err)
		}
		defer locktest.Release(t, h)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the reader has waited %v for a writer of its own process that waits no more", took)
		}
	})
}
