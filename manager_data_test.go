package holdfast_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func count(old []byte) ([]byte, error) {
	n, _ := strconv.Atoi(string(old)) // 0 at first
	return []byte(strconv.Itoa(n + 1)), nil
}

// slowData is a backend whose data takes a while to read and write.
type slowData struct {
	holdfast.Locker
	holdfast.DataStore
}

func (s slowData) Abilities() holdfast.Abilities {
	a := s.Locker.Abilities()
	a.DataStore = s
	return a
}

func (s slowData) ReadData(ctx context.Context, name string) ([]byte, error) {
	data, err := s.DataStore.ReadData(ctx, name)
	time.Sleep(time.Second)
	return data, err
}

func (s slowData) WriteData(ctx context.Context, l holdfast.Lease, data []byte) error {
	time.Sleep(time.Second)
	return s.DataStore.WriteData(ctx, l, data)
}

func TestManagerData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		m := newManager(t, newClient(t, slowData{l, l.Abilities().DataStore}), holdfast.WithData([]byte("10")))
		mustManage(t, m, "a", "b")
		synctest.Wait()
		if data, err := m.ReadData(t.Context(), "a"); err != nil || string(data) != "10" {
			t.Errorf("ReadData: %q, %v", data, err)
		}
		var wg sync.WaitGroup
		for range 5 { // read, change and write take turns: no update is lost
			wg.Go(func() {
				if err := m.UpdateData(t.Context(), "a", count); err != nil {
					t.Errorf("UpdateData: %v", err)
				}
			})
		}
		start := time.Now()
		wg.Go(func() {
			if err := m.WriteData(t.Context(), "b", []byte("x")); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("WriteData of another name: %v after %v", err, time.Since(start))
			}
		})
		wg.Wait()
		if data, err := m.ReadData(t.Context(), "a"); err != nil || string(data) != "15" {
			t.Errorf("after five updates: %q, %v", data, err)
		}
		errOwn := errors.New("the update's own")
		if err := m.UpdateData(t.Context(), "a", func([]byte) ([]byte, error) { return nil, errOwn }); !errors.Is(err, errOwn) {
			t.Errorf("an update that fails: %v", err)
		}
		if err := m.WriteData(t.Context(), "a", make([]byte, 2<<20)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("too much: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _ = m.UpdateData(t.Context(), "a", count) })
		synctest.Wait()
		cancel()
		if err := m.WriteData(ctx, "a", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled while it waits for its turn: %v", err)
		}
		wg.Wait()
		if data, err := m.ReadData(t.Context(), "b"); err != nil || string(data) != "x" {
			t.Errorf("ReadData: %q, %v", data, err)
		}
	})
}

// Data of a lease that is not held, or that is lost meanwhile, is neither read as if it
// were ours nor written.
func TestManagerDataNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		m := newManager(t, newClient(t, slowData{l, l.Abilities().DataStore}))
		mustManage(t, m, "a")
		synctest.Wait()
		steal := func() {
			if err := l.Abilities().Breaker.BreakNow(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			mustTryLock(t, newClient(t, store.Locker()), "a", holdfast.WithData([]byte("another's")))
		}
		if _, err := m.ReadData(t.Context(), "b"); !errors.Is(err, holdfast.ErrLost) || !strings.Contains(err.Error(), "not held") {
			t.Errorf("ReadData of what is not managed: %v", err)
		}
		time.Sleep(9500 * time.Millisecond)
		time.AfterFunc(200*time.Millisecond, steal) // the renewal at 10 s is refused
		if data, err := m.ReadData(t.Context(), "a"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("ReadData during a loss: %q, %v", data, err)
		}
		for what, err := range map[string]error{
			"WriteData": m.WriteData(t.Context(), "a", nil), "UpdateData": m.UpdateData(t.Context(), "a", count),
		} {
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s after a loss: %v", what, err)
			}
		}
		if data, _ := l.Abilities().DataStore.ReadData(t.Context(), "a"); string(data) != "another's" {
			t.Errorf("the data of the next holder became %q", data)
		}
	})
	m := newManager(t, newClient(t, &hollow{}))
	if err := m.WriteData(t.Context(), "a", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a backend without data: %v", err)
	}
	if err := m.UpdateData(t.Context(), "a", nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("no update: %v", err)
	}
}

// A lease that was lost during an update is not written under, although its backend would
// still accept that until the expiry.
func TestManagerUpdateDuringALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		f := newFaulty(t, l, func(op string, _ int, _ holdfast.Lease) fault { return fault{hang: op == opRenew} })
		writes := &writeCount{DataStore: l.Abilities().DataStore}
		m := newManager(t, newClient(t, withData{f, writes}))
		mustManage(t, m, "job")
		synctest.Wait()
		err := m.UpdateData(t.Context(), "job", func(old []byte) ([]byte, error) {
			h, _ := m.Hold("job")
			<-h.Context().Done() // 5 s before the backend's own expiry
			return []byte("too late"), nil
		})
		if !errors.Is(err, holdfast.ErrLost) || writes.n.Load() != 0 {
			t.Errorf("UpdateData: %v, %d writes", err, writes.n.Load())
		}
	})
}

// withData is a Locker with another's data.
type withData struct {
	holdfast.Locker
	data holdfast.DataStore
}

func (w withData) Abilities() holdfast.Abilities {
	a := w.Locker.Abilities()
	a.DataStore = w.data
	return a
}

// writeCount counts the writes.
type writeCount struct {
	holdfast.DataStore
	n atomic.Int64
}

func (w *writeCount) WriteData(ctx context.Context, l holdfast.Lease, data []byte) error {
	w.n.Add(1)
	return w.DataStore.WriteData(ctx, l, data)
}
