package memory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is set by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func config(store *memory.Store) lockertest.Config {
	return lockertest.Config{
		New: func(t *testing.T) holdfast.Locker {
			l := store.Locker()
			t.Cleanup(func() { _ = l.Close() })
			return l
		},
		Forget: func(_ context.Context, name string) error {
			store.Remove(name)
			return nil
		},
	}
}

func TestConformance(t *testing.T) {
	t.Run("clock set by hand", func(t *testing.T) {
		c := newClock()
		cfg := config(memory.NewStore(memory.WithClock(c.Now)))
		cfg.Advance = c.Advance
		lockertest.Run(t, cfg)
	})
	t.Run("real time", func(t *testing.T) {
		cfg := config(memory.NewStore())
		cfg.TTL = 200 * time.Millisecond
		lockertest.Run(t, cfg)
	})
}
