package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// ReadData returns the data stored with a lease that the manager holds; nil if there
// is none. The error matches ErrLost if it does not hold it, or not until the answer
// was there; it matches [errors.ErrUnsupported] if the backend stores no data. The call ends
// within WithTryTimeout's time.
func (m *LeaseManager) ReadData(ctx context.Context, name string) ([]byte, error) {
	h, store, err := m.stored("read data", name)
	if err != nil {
		return nil, err
	}
	data, _, err := m.read(ctx, h, store)
	return data, err
}

// WriteData replaces the data of a lease that the manager holds; the backend itself
// refuses it for a lease that is not held any more. Errors are as for ReadData; data
// that is too large is an *[InvalidError]. After any other error the outcome is unknown: it may
// have been written, or may still be while the lease is held, but not after a later write
// that succeeded.
//
// A write is refused if an earlier one, whose outcome was unknown, arrived late. Then it is
// tried again, up to six times in all: that takes up to 11 backend calls, and about 1.5 s
// between them. Other calls of WriteData and UpdateData for the name wait meanwhile. If every
// try is refused, nothing is written and the error matches [ErrConflict]. So it is if ctx ends
// between two tries; then the error matches ctx's error too.
func (m *LeaseManager) WriteData(ctx context.Context, name string, data []byte) error {
	return m.inTurn(ctx, "write data", name, func(h *Hold, store driver.DataStore) error {
		at := driver.DataRevision{Token: h.Token(), Writes: h.writes}
		return m.insist(ctx, func(again bool) error {
			if again {
				var err error
				if _, at, err = m.read(ctx, h, store); err != nil {
					return err
				}
			}
			return m.write(ctx, h, store, data, at)
		})
	})
}

// UpdateData reads the data of a lease that the manager holds, and writes what update
// makes of it; old is nil if there is none. An error of update's is returned as it is,
// and nothing is written then. Calls of UpdateData and WriteData for one name take
// turns: no update is lost among them. update must not call them for the same name.
//
// The write is refused if the data changed after they were read: an earlier write, whose
// outcome was unknown, arrived late. Then the data are read again, and update is called
// again, up to six times in all. Like WriteData, that takes up to 12 backend calls and about
// 1.5 s between them, while other calls for the name wait. The errors are those of WriteData.
func (m *LeaseManager) UpdateData(ctx context.Context, name string, update func(old []byte) ([]byte, error)) error {
	if update == nil {
		return driver.Invalid("update", "nil", "a function")
	}
	return m.inTurn(ctx, "update data", name, func(h *Hold, store driver.DataStore) error {
		return m.insist(ctx, func(bool) error {
			old, at, err := m.read(ctx, h, store)
			if err != nil {
				return err
			}
			data, err := update(old)
			if err != nil {
				return &ownError{err}
			}
			return m.write(ctx, h, store, data, at)
		})
	})
}

// ownError is an error of the caller's function.
type ownError struct{ error }

// conflictTries is how often data are written whose revision has changed.
const conflictTries = 6

// insist repeats a write that met a conflict. A backend may show the data of a moment ago,
// after a change of its primary for one, so the tries are apart from each other.
func (m *LeaseManager) insist(ctx context.Context, try func(again bool) error) error {
	for n := 0; ; n++ {
		err := try(n > 0)
		var own *ownError
		if errors.As(err, &own) {
			return own.error
		}
		if !errors.Is(err, ErrConflict) || n == conflictTries-1 {
			return err
		}
		select {
		case <-time.After(clock.Backoff(n, 50*time.Millisecond, time.Second)):
		case <-ctx.Done():
			return fmt.Errorf("%w; not tried again: %w", err, endOf(ctx))
		}
	}
}

// stored finds the hold of a name, and where its data is.
func (m *LeaseManager) stored(op, name string) (*Hold, driver.DataStore, error) {
	store := m.client.capabilities.DataStore
	if store == nil {
		return nil, nil, fmt.Errorf("holdfast: %s %q: this backend stores no data with a lock: %w", op, name, errors.ErrUnsupported)
	}
	h, ok := m.Hold(name)
	if !ok {
		return nil, nil, fmt.Errorf("holdfast: %s %q: not held by this manager: %w", op, name, ErrLost)
	}
	return h, store, nil
}

func (m *LeaseManager) inTurn(ctx context.Context, op, name string, do func(*Hold, driver.DataStore) error) error {
	done, err := m.turns.take(ctx, name)
	if err != nil {
		return fmt.Errorf("holdfast: %s %q: %w", op, name, err)
	}
	defer done()
	h, store, err := m.stored(op, name)
	if err != nil {
		return err
	}
	return do(h, store)
}

func (m *LeaseManager) read(ctx context.Context, h *Hold, store driver.DataStore) ([]byte, driver.DataRevision, error) {
	ctx, cancel := context.WithTimeout(ctx, m.settings.tryTimeout)
	defer cancel()
	data, at, err := store.ReadData(ctx, h.Name())
	if gone := h.Err(); gone != nil && err == nil { // it may be another's data
		return nil, at, fmt.Errorf("holdfast: read data %q: %w", h.Name(), notHeld(gone))
	}
	return data, at, err
}

func (m *LeaseManager) write(ctx context.Context, h *Hold, store driver.DataStore, data []byte, at driver.DataRevision) error {
	if err := driver.ValidateData(data, m.client.limits); err != nil {
		return err
	}
	if gone := h.Err(); gone != nil {
		return fmt.Errorf("holdfast: write data %q: %w", h.Name(), notHeld(gone))
	}
	ctx, cancel := context.WithTimeout(ctx, m.settings.tryTimeout)
	defer cancel()
	err := store.WriteData(ctx, h.Lease(), data, at)
	if err == nil {
		h.writes = at.Next().Writes
	}
	return err
}

// notHeld makes whatever ended a hold, a release for one, match ErrLost.
func notHeld(gone error) error {
	if errors.Is(gone, ErrLost) {
		return gone
	}
	return fmt.Errorf("%w: %w", ErrLost, gone)
}

// turns has callers go one after another for each name.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn is over
}

// take waits for the caller's turn; it must call done.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		before := t.taken[name]
		if before == nil {
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			t.taken[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, name)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err() // not its cause, which may be the loss of another lock
		}
	}
}
