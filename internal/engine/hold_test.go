package engine_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The clocks may drift apart by 0.1 % of the TTL, so the lease counts as expired that much
// earlier.
func TestTimeLeftOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := locktest.MustLock(t, locktest.NewClient(t, memory.New()), "job")
		time.Sleep(4 * time.Second)
		if in, want := h.LostIn(), 21*time.Second; in != want {
			t.Errorf("lost in %v, want %v", in, want)
		}
		if in, want := h.ExpiresIn(), 26*time.Second-30*time.Millisecond; in != want {
			t.Errorf("expires in %v, want %v", in, want)
		}
	})
}

// If the lock was lost before the function returned, the result matches ErrLost, also when the
// caller canceled the function before the loss.
func TestLossAfterCancellationIsReturned(t *testing.T) {
	work := func(ctx context.Context) error { time.Sleep(time.Minute); return nil }
	locktest.Bubble(t, "Do, caller canceled", func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.Refuse(locktest.OpRenew))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		go func() { // another process holds the lock from 30 s on
			time.Sleep(2 * time.Second)
			_ = locktest.NewClient(t, store.Locker()).Do(context.Background(), "job", func(context.Context) error { return nil })
		}()
		if err := c.Do(ctx, "job", work); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("lost after 25 s, fn returned after 60 s: Do returned %v", err)
		}
	})
	locktest.Bubble(t, "Do, Shutdown", func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), locktest.Refuse(locktest.OpRenew))
		time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
		if err := c.Do(t.Context(), "job", work); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do returned %v", err)
		}
	})
	locktest.Bubble(t, "RunTaskOnLeader, StepDown", func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), locktest.Refuse(locktest.OpRenew))
		r := locktest.NewRunner(t, c)
		time.AfterFunc(time.Second, func() { _ = r.StepDown(context.Background()) })
		ran, err := r.RunTaskOnLeader(t.Context(), work)
		if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrSteppedDown) {
			t.Errorf("the lock was lost before the task returned: %v, %v", ran, err)
		}
	})
}

// The context of a hold may be asked for at any time, also while the hold ends: it ends with the
// hold, for the same cause, and all calls return the same one.
func TestContextOfAHoldThatEnds(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for range 500 {
		h := locktest.MustLock(t, c, "job")
		contexts := make(chan context.Context, 4)
		for range cap(contexts) {
			go func() { contexts <- h.Context() }()
		}
		locktest.Release(t, h)
		if err := h.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Fatalf("Err after the release: %v", err)
		}
		for range cap(contexts) {
			ctx := <-contexts
			if ctx != h.Context() {
				t.Fatal("two contexts of one hold")
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Fatal("the context has not ended with the hold")
			}
			if why := context.Cause(ctx); !errors.Is(why, holdfast.ErrReleased) || !errors.Is(h.Err(), why) {
				t.Fatalf("the cause is %v, and Err returns %v", why, h.Err())
			}
			if got, ok := holdfast.HoldFromContext(ctx); !ok || bridge.Hold(got) != bridge.Hold(h) {
				t.Fatal("the context is not the hold's")
			}
		}
	}
}

// releaseSeen calls a function before each release.
type releaseSeen struct {
	holdfast.Locker
	before func()
}

func (l releaseSeen) Release(ctx context.Context, lease holdfast.Lease) error {
	l.before()
	return l.Locker.Release(ctx, lease)
}

// The context of a hold has ended when the release is sent, also if another goroutine has begun to
// end it just before.
func TestContextEndsBeforeTheReleaseIsSent(t *testing.T) {
	var children []context.Context // ending them takes a while
	c := locktest.NewClient(t, releaseSeen{memory.New(), func() {
		for _, ctx := range children {
			if ctx.Err() == nil {
				t.Error("the release is sent while a context of the hold is live")
				return
			}
		}
	}})
	for range 300 {
		h := locktest.MustLock(t, c, "job")
		children = nil
		for range 300 {
			ctx, cancel := context.WithCancel(h.Context())
			defer cancel()
			children = append(children, ctx)
		}
		other := make(chan struct{})
		go func() {
			bridge.Hold(h).Cancel(errors.New("another reason"))
			close(other)
		}()
		runtime.Gosched()
		locktest.Release(t, h)
		<-other
	}
}
