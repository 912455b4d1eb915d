package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// releaseLog is a Locker that notes its calls that release, which take a while each. onBatch may answer a
// batch instead.
type releaseLog struct {
	*memory.Locker
	onBatch func(n int, leases []driver.Lease) []error

	mu                   sync.Mutex
	singles, now, most   int
	batches              []int
	singlesAtOnce, alone int
}

const releaseTakes = 10 * time.Millisecond

func (l *releaseLog) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.BatchReleaser = l
	return c
}

func (l *releaseLog) Release(ctx context.Context, lease driver.Lease) error {
	l.mu.Lock()
	l.singles++
	l.alone++
	l.singlesAtOnce = max(l.singlesAtOnce, l.alone)
	l.mu.Unlock()
	time.Sleep(releaseTakes)
	l.mu.Lock()
	l.alone--
	l.mu.Unlock()
	return l.Locker.Release(ctx, lease)
}

func (l *releaseLog) ReleaseBatch(ctx context.Context, leases []driver.Lease) []error {
	l.mu.Lock()
	l.batches = append(l.batches, len(leases))
	n := len(l.batches)
	l.now++
	l.most = max(l.most, l.now)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.now--
	}()
	time.Sleep(releaseTakes)
	if l.onBatch != nil {
		if errs := l.onBatch(n, leases); errs != nil {
			return errs
		}
	}
	return l.Locker.ReleaseBatch(ctx, leases)
}

// Shutdown releases many holds in batches, a few at a time. Whatever happens to a batch, each of its
// locks is released by itself then.
func TestShutdownReleasesInBatches(t *testing.T) {
	failed := errors.New("the batch failed")
	for what, onBatch := range map[string]func(n int, leases []driver.Lease) []error{
		"batches work": nil,
		"a batch fails": func(n int, leases []driver.Lease) []error {
			if n == 2 {
				return slices.Repeat([]error{failed}, len(leases))
			}
			return nil
		},
		"a batch has too few results": func(n int, _ []driver.Lease) []error {
			if n == 2 {
				return []error{nil}
			}
			return nil
		},
		"a batch hangs": func(n int, leases []driver.Lease) []error {
			if n == 2 {
				time.Sleep(10 * time.Minute) // whatever its context says
				return slices.Repeat([]error{failed}, len(leases))
			}
			return nil
		},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store := memory.NewStore()
			log := &releaseLog{Locker: store.Locker(), onBatch: onBatch}
			c := locktest.NewClient(t, log, holdfast.WithTTL(time.Hour))
			const holds = 3000
			for i := range holds {
				locktest.MustLock(t, c, fmt.Sprint(i))
			}
			start := time.Now()
			time.AfterFunc(2*time.Minute, func() {
				held := 0
				for i := range holds {
					if locktest.IsHeld(t, store, fmt.Sprint(i)) {
						held++
					}
				}
				if held > 1 { // the hold whose release makes the call waits for it
					t.Errorf("after two minutes %d locks are held", held)
				}
			})
			if err := c.Shutdown(t.Context()); err != nil && what != "a batch hangs" {
				t.Error(err)
			}
			took := time.Since(start)
			for i := range holds {
				if locktest.IsHeld(t, store, fmt.Sprint(i)) {
					t.Fatalf("lock %d is left held", i)
				}
			}
			if log.most > 4 || slices.Max(log.batches) > 500 || log.singlesAtOnce > 64 {
				t.Errorf("%d batches of up to %d at once, and %d single releases", log.most, slices.Max(log.batches), log.singlesAtOnce)
			}
			if what == "batches work" && (log.singles > 4 || len(log.batches) > 10 || took > time.Second) {
				t.Errorf("%d single releases and %d batches took %v", log.singles, len(log.batches), took)
			}
			if what != "batches work" && (log.singles < 2 || log.singles > 504) {
				t.Errorf("%d single releases", log.singles)
			}
			t.Logf("%d single releases and batches of %v took %v", log.singles, log.batches, took)
		})
	}
}

// Batches of leases with long time limits do not delay those with short ones, although they hang.
func TestHungBatchesDelayOnlyTheirClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		log := &releaseLog{Locker: store.Locker(), onBatch: func(_ int, leases []driver.Lease) []error {
			if leases[0].TTL == time.Hour {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		c := locktest.NewClient(t, log)
		for i := range 3000 {
			locktest.MustLock(t, c, fmt.Sprint("long ", i), holdfast.WithTTL(time.Hour))
		}
		for i := range 100 {
			locktest.MustLock(t, c, fmt.Sprint("short ", i), holdfast.WithTTL(3*time.Second))
		}
		done := make(chan error)
		go func() { done <- c.Shutdown(context.Background()) }()
		time.Sleep(time.Second)
		for i := range 100 {
			if locktest.IsHeld(t, store, fmt.Sprint("short ", i)) {
				t.Fatal("a lock with a short TTL is left held")
			}
		}
		if err := <-done; err != nil {
			t.Logf("the locks with long TTLs: %v", err)
		}
	})
}

// The releases of a program go one by one, however many there are: they do not wait for each other.
func TestReleasesOfAProgramDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &releaseLog{Locker: memory.New()}
		c := locktest.NewClient(t, log)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			h := locktest.MustLock(t, c, fmt.Sprint(i))
			wg.Go(func() { _ = h.Release(t.Context()) })
		}
		wg.Wait()
		if took := time.Since(start); took != releaseTakes || len(log.batches) > 0 || log.singles != 100 {
			t.Errorf("%d single releases and %d batches took %v", log.singles, len(log.batches), took)
		}
	})
}

// A LeaseManager releases in batches, and retries one by one.
func TestManagerReleasesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		log := &releaseLog{Locker: store.Locker(), onBatch: func(n int, leases []driver.Lease) []error {
			if n == 1 {
				return slices.Repeat([]error{errors.New("the first batch fails")}, len(leases))
			}
			return nil
		}}
		m := locktest.NewManager(t, locktest.NewClient(t, log, holdfast.WithTTL(time.Minute)))
		names := locktest.Names("n", 3000)
		locktest.MustAdd(t, m, names...)
		time.Sleep(10 * time.Second)
		if n := len(m.Leases()); n != len(names) {
			t.Fatalf("%d leases", n)
		}
		locktest.MustRemove(t, m, names...)
		for _, name := range names {
			if locktest.IsHeld(t, store, name) {
				t.Fatalf("%s is left held", name)
			}
		}
		if log.most > 4 || slices.Max(log.batches) > 500 || log.singlesAtOnce > 64 || len(log.batches) > 12 || log.singles > 600 {
			t.Errorf("batches of %v, %d at once, and %d single releases, %d at once", log.batches, log.most, log.singles, log.singlesAtOnce)
		}
	})
}

// When Shutdown gives up, what waits for a call is released at once, each lock by itself.
func TestWaitingReleasesAreSentWhenShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		log := &releaseLog{Locker: store.Locker(), onBatch: func(_ int, leases []driver.Lease) []error {
			time.Sleep(time.Minute) // whatever its context says
			return make([]error, len(leases))
		}}
		c := locktest.NewClient(t, log, holdfast.WithTTL(time.Hour))
		const holds = 3000
		for i := range holds {
			locktest.MustLock(t, c, fmt.Sprint(i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		synctest.Wait()
		log.mu.Lock()
		batched := 0
		for _, n := range log.batches {
			batched += n
		}
		if log.singles != holds-batched || batched > 2000 {
			t.Errorf("%d single releases, and batches of %v, for %d holds", log.singles, log.batches, holds)
		}
		log.mu.Unlock()
		time.Sleep(2 * time.Minute)
	})
}
