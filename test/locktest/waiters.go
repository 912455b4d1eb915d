package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Waiters is one process that waits for many names, which another process holds.
type Waiters struct {
	t      *testing.T
	store  *memory.Store
	Calls  *Faulty // the waiting process's backend
	Client *holdfast.Client
	Holds  map[string]*holdfast.Hold // of the other process
	dead   atomic.Bool               // the other process no longer renews or releases
	Wg     sync.WaitGroup            // the waiters

	Mu      sync.Mutex
	Granted map[string]time.Time
}

// NewWaiters begins to wait for so many names. It calls adjust before the first waiter, to change
// the waiting process's backend.
func NewWaiters(t *testing.T, names int, adjust func(*Faulty), opts ...holdfast.ClientOption) *Waiters {
	w := &Waiters{t: t, store: memory.NewStore(), Holds: map[string]*holdfast.Hold{}, Granted: map[string]time.Time{}}
	holder := NewClient(t, mortal(w.store.Locker(), &w.dead))
	w.Calls = NewFaulty(t, w.store.Locker(), nil)
	w.Calls.Watcher = true
	adjust(w.Calls)
	w.Client = NewClient(t, w.Calls, opts...)
	for i := range names {
		name := fmt.Sprint("job-", i)
		w.Holds[name] = MustLock(t, holder, name)
		w.Wg.Go(func() {
			_, err := w.Client.Lock(t.Context(), name) // held until the end
			if errors.Is(err, holdfast.ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			w.Mu.Lock()
			defer w.Mu.Unlock()
			w.Granted[name] = time.Now()
		})
		time.Sleep(10 * time.Millisecond) // one waiter begins after another
	}
	synctest.Wait()
	return w
}

// CheckTakeover lets the holding process die and checks that each lock, except for some, is
// granted to its waiter at its expiry.
func (w *Waiters) CheckTakeover(except ...string) {
	w.t.Helper()
	w.dead.Store(true)
	ends := map[string]time.Time{}
	l := w.store.Locker()
	defer func() { _ = l.Close(context.WithoutCancel(w.t.Context())) }()
	for name := range w.Holds {
		r, err := l.Inspect(context.Background(), name)
		if err != nil || !r.RemainingKnown {
			w.t.Fatalf("Inspect: %v, %v", r, err)
		}
		ends[name] = time.Now().Add(r.Remaining)
	}
	w.Wg.Wait()
	for name, end := range ends {
		if slices.Contains(except, name) {
			continue
		}
		if late := w.Granted[name].Sub(end); late < 0 || late > 20*time.Millisecond {
			w.t.Errorf("%s was granted %v after its expiry", name, late)
		}
	}
}
