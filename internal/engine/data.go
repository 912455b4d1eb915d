package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// writer makes the writes of a hold's data go one after another.
type writer struct {
	turn   chan struct{} // capacity 1: taken by the call that writes
	writes uint64        // of the data since the lock was acquired, as far as known
}

// writeAttempts is how often data are written whose revision has changed.
const writeAttempts = 6

// ReadData returns the data stored with the lock.
func (h *Hold) ReadData(ctx context.Context) ([]byte, error) {
	store, err := h.dataStore("read data")
	if err != nil {
		return nil, err
	}
	data, _, err := h.readData(ctx, store)
	return data, err
}

// WriteData replaces the data stored with the lock.
func (h *Hold) WriteData(ctx context.Context, data []byte) error {
	return h.writeInTurn(ctx, "write data", func(store driver.DataStore, w *writer) error {
		at := driver.DataRevision{Token: h.Token(), Writes: w.writes}
		return retryConflicts(ctx, func(again bool) error {
			if again {
				var err error
				if _, at, err = h.readData(ctx, store); err != nil {
					return err
				}
			}
			return h.writeData(ctx, store, w, data, at)
		})
	})
}

// UpdateData reads the data stored with the lock, and writes what update returns.
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	if update == nil {
		return driver.Invalid("update", "nil", "a function")
	}
	return h.writeInTurn(ctx, "update data", func(store driver.DataStore, w *writer) error {
		var callers error // an error of the caller's function, which is returned as it is
		err := retryConflicts(ctx, func(bool) error {
			old, at, err := h.readData(ctx, store)
			if err != nil {
				return err
			}
			data, err := update(old)
			if err != nil {
				callers = err
				return nil
			}
			return h.writeData(ctx, store, w, data, at)
		})
		if callers != nil {
			return callers
		}
		return err
	})
}

// retryConflicts repeats a write that was refused because the data had changed. A backend may
// show old data for a moment, for example after a change of its primary, so there is a delay
// between the attempts.
func retryConflicts(ctx context.Context, write func(again bool) error) error {
	for n := 0; ; n++ {
		err := write(n > 0)
		if !errors.Is(err, driver.ErrConflict) || n == writeAttempts-1 {
			return err
		}
		select {
		case <-time.After(clock.Backoff(n, 50*time.Millisecond, time.Second)):
		case <-ctx.Done():
			return fmt.Errorf("%w; not tried again: %w", err, cause.Of(ctx))
		}
	}
}

// dataStore finds where the data is, if the hold is live.
func (h *Hold) dataStore(op string) (driver.DataStore, error) {
	store := h.client.capabilities.DataStore
	if store == nil {
		return nil, fmt.Errorf("holdfast: %s %q: this backend stores no data with a lock: %w", op, h.Name(), errors.ErrUnsupported)
	}
	return store, h.lostData(op)
}

// lostData is the error of a call for the data of a hold that has ended; nil for a live one.
// Whatever ended the hold, a release for example, the error matches ErrLost.
func (h *Hold) lostData(op string) error {
	switch gone := h.Err(); {
	case gone == nil:
		return nil
	case errors.Is(gone, driver.ErrLost):
		return fmt.Errorf("holdfast: %s %q: %w", op, h.Name(), gone)
	default:
		return fmt.Errorf("holdfast: %s %q: %w: %w", op, h.Name(), driver.ErrLost, gone)
	}
}

func (h *Hold) writeInTurn(ctx context.Context, op string, write func(driver.DataStore, *writer) error) error {
	if h.writer.Load() == nil {
		h.writer.CompareAndSwap(nil, &writer{turn: make(chan struct{}, 1)})
	}
	w := h.writer.Load()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("holdfast: %s %q: %w", op, h.Name(), ctx.Err()) // not its cause, which may be the loss of another lock
	}
	defer func() { <-w.turn }()
	store, err := h.dataStore(op)
	if err != nil {
		return err
	}
	return write(store, w)
}

func (h *Hold) readData(ctx context.Context, store driver.DataStore) ([]byte, driver.DataRevision, error) {
	limited, cancel := context.WithTimeout(ctx, h.entry.Timing.RequestTimeout)
	defer cancel()
	data, at, err := store.ReadData(limited, h.Name())
	if err == nil {
		if err = h.lostData("read data"); err != nil { // the data may be another's
			data = nil
		}
	}
	return data, at, err
}

func (h *Hold) writeData(ctx context.Context, store driver.DataStore, w *writer, data []byte, at driver.DataRevision) error {
	if err := driver.ValidateData(data, h.client.limits); err != nil {
		return err
	}
	if err := h.lostData("write data"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, h.entry.Timing.RequestTimeout)
	defer cancel()
	// Promises 1 and 3: the backend itself compares the lease and the revision.
	err := store.WriteData(limited, h.Lease(), data, at)
	if err == nil {
		w.writes = at.Next().Writes
	}
	return err
}
