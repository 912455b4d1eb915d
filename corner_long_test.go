package holdfast_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// With a long TTL every pause and every limit that is a share of it grows too: one
// failed call must not cost a quarter of an hour.
func TestCorner_LongTTL(t *testing.T) {
	const ttl = 24 * time.Hour
	nothing := func(context.Context) error { return nil }
	t.Run("one release fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
				if op == opRelease && n == 1 {
					return fault{refuse: errInjected}
				}
				return fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = c.Do(t.Context(), "job", nothing)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("Do returned %v after its function", d)
			}
		})
	})
	t.Run("one release hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
				if op == opRelease && n == 1 {
					return fault{hang: true}
				}
				return fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = c.Do(t.Context(), "job", nothing)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("Do returned %v after its function", d)
			}
		})
	})
	t.Run("one attempt hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
				if op == opAcquire && n == 1 {
					return fault{hang: true}
				}
				return fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = mustLock(t, c, "job").Release(t.Context())
			if d := time.Since(start); d > time.Minute {
				t.Errorf("a free lock was granted after %v", d)
			}
		})
	})
	t.Run("an acquire lands 10 s late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
				if op == opAcquire && n == 1 {
					return fault{late: 10 * time.Second}
				}
				return fault{}
			}), holdfast.WithTTL(ttl))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _ = c.TryLock(ctx, "job")
			time.Sleep(5 * time.Minute)
			if isHeld(t, store, "job") {
				t.Error("still held 5 minutes later")
			}
		})
	})
}

// The leadership that RunTaskOnLeader keeps between calls must not keep what belonged
// to the first call's request.
func TestCorner_FirstCallsValuesAreKept(t *testing.T) {
	type key struct{}
	type request [1 << 16]byte
	r := newRunner(t, newClient(t, memory.New()))
	var p weak.Pointer[request]
	func() {
		v := &request{}
		p = weak.Make(v)
		if _, err := r.RunTaskOnLeader(context.WithValue(t.Context(), key{}, v), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}()
	for range 5 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if p.Value() != nil {
		t.Error("the first call is over, and its context's values stay as long as the leadership")
	}
	_ = r.Close(t.Context())
}
