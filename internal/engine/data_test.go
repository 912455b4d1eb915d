package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func count(old []byte) ([]byte, error) {
	n, _ := strconv.Atoi(string(old)) // 0 at first
	return []byte(strconv.Itoa(n + 1)), nil
}

// slowData is a backend whose data takes a while to read and write.
type slowData struct {
	holdfast.Locker
	driver.DataStore
}

func (s slowData) Capabilities() driver.Capabilities {
	a := s.Locker.Capabilities()
	a.DataStore = s
	return a
}

func (s slowData) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	data, at, err := s.DataStore.ReadData(ctx, name)
	time.Sleep(time.Second)
	return data, at, err
}

func (s slowData) WriteData(ctx context.Context, l holdfast.Lease, data []byte, at driver.DataRevision) error {
	time.Sleep(time.Second)
	return s.DataStore.WriteData(ctx, l, data, at)
}

func TestHoldData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		m := locktest.NewManager(t, locktest.NewClient(t, slowData{l, l.Capabilities().DataStore}), holdfast.WithData([]byte("10")))
		locktest.MustAdd(t, m, "a", "b")
		synctest.Wait()
		if data, err := held(t, m, "a").Data(t.Context()); err != nil || string(data) != "10" {
			t.Errorf("ReadData: %q, %v", data, err)
		}
		var wg sync.WaitGroup
		for range 5 { // updates take turns: none is lost
			wg.Go(func() {
				if err := held(t, m, "a").UpdateData(t.Context(), count); err != nil {
					t.Errorf("UpdateData: %v", err)
				}
			})
		}
		start := time.Now()
		wg.Go(func() {
			if err := held(t, m, "b").WriteData(t.Context(), []byte("x")); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("WriteData of another name: %v after %v", err, time.Since(start))
			}
		})
		wg.Wait()
		if data, err := held(t, m, "a").Data(t.Context()); err != nil || string(data) != "15" {
			t.Errorf("after five updates: %q, %v", data, err)
		}
		errOwn := errors.New("the update's own")
		if err := held(t, m, "a").UpdateData(t.Context(), func([]byte) ([]byte, error) { return nil, errOwn }); !errors.Is(err, errOwn) {
			t.Errorf("an update that fails: %v", err)
		}
		if err := held(t, m, "a").WriteData(t.Context(), make([]byte, 2<<20)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("too much: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _ = held(t, m, "a").UpdateData(t.Context(), count) })
		synctest.Wait()
		cancel()
		if err := held(t, m, "a").WriteData(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled while it waits for its turn: %v", err)
		}
		wg.Wait()
		if data, err := held(t, m, "b").Data(t.Context()); err != nil || string(data) != "x" {
			t.Errorf("ReadData: %q, %v", data, err)
		}
	})
}

// held returns the manager's hold of a name.
func held(t *testing.T, m *leases.LeaseManager, name string) *holdfast.Hold {
	t.Helper()
	h, ok := m.Hold(name)
	if !ok {
		t.Fatalf("%q is not held", name)
	}
	return h
}

// A lost hold, and one that is lost during the call, neither returns data nor writes them.
func TestDataOfALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		m := locktest.NewManager(t, locktest.NewClient(t, slowData{l, l.Capabilities().DataStore}))
		locktest.MustAdd(t, m, "a")
		synctest.Wait()
		steal := func() {
			if err := l.Capabilities().Breaker.BreakNow(t.Context(), "a", driver.BreakAnybody()); err != nil {
				t.Fatal(err)
			}
			locktest.MustTryLock(t, locktest.NewClient(t, store.Locker()), "a", holdfast.WithData([]byte("another's")))
		}
		h := held(t, m, "a")
		time.Sleep(9500 * time.Millisecond)
		time.AfterFunc(200*time.Millisecond, steal) // the renewal at 10 s is refused
		if data, err := h.Data(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("ReadData during a loss: %q, %v", data, err)
		}
		for what, err := range map[string]error{
			"WriteData": h.WriteData(t.Context(), nil), "UpdateData": h.UpdateData(t.Context(), count),
		} {
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s after a loss: %v", what, err)
			}
		}
		if data, _, _ := l.Capabilities().DataStore.ReadData(t.Context(), "a"); string(data) != "another's" {
			t.Errorf("the data of the next holder became %q", data)
		}
	})
}

// A lease that is lost during an update does not write, although the backend would accept that
// until the expiry.
func TestUpdateDataDuringALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		f := locktest.NewFaulty(t, l, locktest.Each(locktest.OpRenew, locktest.Fault{Hang: true}))
		store := &lateData{Locker: f, DataStore: l.Capabilities().DataStore}
		m := locktest.NewManager(t, locktest.NewClient(t, store))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		err := held(t, m, "job").UpdateData(t.Context(), func(old []byte) ([]byte, error) {
			h, _ := m.Hold("job")
			<-h.Context().Done() // 5 s before the backend's own expiry
			return []byte("too late"), nil
		})
		if !errors.Is(err, holdfast.ErrLost) || store.took() != [2]int{1, 0} {
			t.Errorf("UpdateData: %v, or a write", err)
		}
	})
}

// lateData is a backend that counts its calls and can delay the next write until after its time
// limit.
type lateData struct {
	holdfast.Locker
	driver.DataStore
	late          time.Duration // of the next write
	lag           int           // this many reads return old data
	old           func() ([]byte, driver.DataRevision, error)
	reads, writes int
}

func (s *lateData) Capabilities() driver.Capabilities {
	a := s.Locker.Capabilities()
	a.DataStore = s
	return a
}

func (s *lateData) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	s.reads++
	if s.lag > 0 {
		s.lag--
		return s.old()
	}
	return s.DataStore.ReadData(ctx, name)
}

func (s *lateData) WriteData(ctx context.Context, l holdfast.Lease, data []byte, at driver.DataRevision) error {
	s.writes++
	if s.late == 0 {
		return s.DataStore.WriteData(ctx, l, data, at)
	}
	time.AfterFunc(s.late, func() { _ = s.DataStore.WriteData(context.WithoutCancel(ctx), l, data, at) })
	s.late = 0
	<-ctx.Done()
	return ctx.Err()
}

// took returns how many calls there were since the last time.
func (s *lateData) took() [2]int {
	calls := [2]int{s.reads, s.writes}
	s.reads, s.writes = 0, 0
	return calls
}

// managedLateData returns a manager that holds the lock "a", and its store.
func managedLateData(t *testing.T) (*lateData, *leases.LeaseManager) {
	l := memory.New()
	store := &lateData{Locker: l, DataStore: l.Capabilities().DataStore}
	m := locktest.NewManager(t, locktest.NewClient(t, store), holdfast.WithRequestTimeout(4*time.Second))
	locktest.MustAdd(t, m, "a")
	synctest.Wait()
	return store, m
}

// A write that lands after its time limit changes nothing once a later write has succeeded, and no
// update is based on data from before it.
func TestLateWriteOfData(t *testing.T) {
	for what, c := range map[string]struct {
		late  time.Duration // the request timeout is 4 s
		want  string
		calls [2]int // of the second update or write
	}{
		"after the second update":  {time.Minute, "b", [2]int{1, 1}},
		"before the second update": {5 * time.Second, "ab", [2]int{1, 1}},
		"while it is made":         {6500 * time.Millisecond, "ab", [2]int{2, 2}},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store, m := managedLateData(t)
			store.late = c.late
			if err := held(t, m, "a").UpdateData(t.Context(), func([]byte) ([]byte, error) { return []byte("a"), nil }); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Fatalf("the first update: %v", err)
			}
			store.took()
			time.Sleep(2 * time.Second)
			err := held(t, m, "a").UpdateData(t.Context(), func(old []byte) ([]byte, error) {
				time.Sleep(time.Second)
				return append(old, 'b'), nil
			})
			if calls := store.took(); err != nil || calls != c.calls {
				t.Errorf("the second update: %v, after %v reads and writes, want %v", err, calls, c.calls)
			}
			time.Sleep(2 * time.Minute)
			if data, err := held(t, m, "a").Data(t.Context()); err != nil || string(data) != c.want {
				t.Errorf("the data are %q, want %q; %v", data, c.want, err)
			}
		})
	}
	for what, late := range map[string]time.Duration{"after the second write": time.Minute, "before the second write": 5 * time.Second} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store, m := managedLateData(t)
			write := func(text string, calls [2]int) {
				t.Helper()
				store.took()
				if err := held(t, m, "a").WriteData(t.Context(), []byte(text)); err != nil || store.took() != calls {
					t.Errorf("write %q: %v, want %v reads and writes", text, err, calls)
				}
			}
			write("first", [2]int{0, 1}) // no read before the write, also for the next ones
			write("second", [2]int{0, 1})
			store.late = late
			if err := held(t, m, "a").WriteData(t.Context(), []byte("late")); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the late write: %v", err)
			}
			time.Sleep(2 * time.Second)
			if late == time.Minute {
				write("third", [2]int{0, 1})
			} else {
				write("third", [2]int{1, 2})
			}
			time.Sleep(2 * time.Minute)
			if data, err := held(t, m, "a").Data(t.Context()); err != nil || string(data) != "third" {
				t.Errorf("the data are %q, %v", data, err)
			}
			write("fourth", [2]int{0, 1})
			if err := held(t, m, "a").UpdateData(t.Context(), count); err != nil {
				t.Error(err)
			}
			write("fifth", [2]int{0, 1}) // it knows what the update did
		})
	}
}

// A write that was refused for data that a backend returned too late is tried again, with a
// backoff, and not forever.
func TestDataConflictsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		store := &lateData{Locker: l, DataStore: l.Capabilities().DataStore}
		m := locktest.NewManager(t, locktest.NewClient(t, store))
		locktest.MustAdd(t, m, "a")
		synctest.Wait()
		update := func() (time.Duration, error) {
			start := time.Now()
			err := held(t, m, "a").UpdateData(t.Context(), count)
			return time.Since(start), err
		}
		old, at, err := l.ReadData(t.Context(), "a")
		store.old = func() ([]byte, driver.DataRevision, error) { return old, at, err }
		if _, err := update(); err != nil {
			t.Fatal(err)
		}
		store.lag = 3
		if took, err := update(); err != nil || took < 200*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("three reads too old: %v after %v", err, took)
		}
		store.lag = 1000
		store.took()
		took, err := update()
		if calls := store.took(); !errors.Is(err, driver.ErrConflict) || calls[0] > 10 || took > 5*time.Second {
			t.Errorf("reads that stay too old: %v after %v and %v calls", err, took, calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		start := time.Now()
		err = held(t, m, "a").UpdateData(ctx, count)
		if !errors.Is(err, driver.ErrConflict) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 60*time.Millisecond {
			t.Errorf("the caller's context ended: %v after %v", err, time.Since(start))
		}
		own := fmt.Errorf("the update's own: %w", driver.ErrConflict)
		store.lag = 0
		store.took()
		err = held(t, m, "a").UpdateData(t.Context(), func([]byte) ([]byte, error) { return nil, own })
		if err != own || store.took() != [2]int{1, 0} { //nolint:errorlint // it is returned as it is
			t.Errorf("an update that fails: %v", err)
		}
		if data, err := held(t, m, "a").Data(t.Context()); string(data) != "2" || err != nil {
			t.Errorf("the data are %q, %v", data, err)
		}
	})
}
