package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// writer orders the writes of a hold's data.
type writer struct {
	turn   chan struct{} // capacity 1: taken by the call that writes
	writes uint64        // known writes of the data since the lock was acquired
}

// writeAttempts is how often a write is attempted when the data have changed.
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

// WriteData replaces the data stored with the lock. It reads them only if they have changed
// unknown to this hold.
func (h *Hold) WriteData(ctx context.Context, data []byte) error {
	return h.writeInTurn(ctx, "write data", false, func([]byte) ([]byte, error) { return data, nil })
}

// UpdateData reads the data stored with the lock, and writes what update returns.
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	if update == nil {
		return driver.Invalid("update", "nil", "a function")
	}
	return h.writeInTurn(ctx, "update data", true, update)
}

// writeInTurn waits for the calls that write before, and writes what update makes of the data. It
// tries again if the write was refused because the data had changed. A backend may return old data
// for a moment, for example after a change of its primary, so there is a backoff.
func (h *Hold) writeInTurn(ctx context.Context, op string, read bool, update func(old []byte) ([]byte, error)) error {
	if h.writer.Load() == nil {
		h.writer.CompareAndSwap(nil, &writer{turn: make(chan struct{}, 1)})
	}
	w := h.writer.Load()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return driver.Errorf("holdfast: %s %q: %w", op, h.Name(), ctx.Err()) // not its cause, which may be the loss of another lock
	}
	defer func() { <-w.turn }()
	store, err := h.dataStore(op)
	if err != nil {
		return err
	}
	var old []byte
	revision := driver.DataRevision{Token: h.Token(), Writes: w.writes}
	for n := 0; ; n++ {
		if read || n > 0 {
			old, revision, err = h.readData(ctx, store)
		}
		if err == nil {
			data, updateErr := update(old)
			if updateErr != nil {
				return updateErr // the caller's own, as it is
			}
			err = h.writeData(ctx, store, w, data, revision)
		}
		if !errors.Is(err, driver.ErrConflict) || n == writeAttempts-1 {
			return err
		}
		select {
		case <-time.After(timing.Backoff(n, 50*time.Millisecond, time.Second)):
		case <-ctx.Done():
			return driver.Errorf("%w; not tried again: %w", err, cause.Of(ctx))
		}
	}
}

// dataStore returns what stores the data, if the hold is live.
func (h *Hold) dataStore(op string) (driver.DataStore, error) {
	store := h.client.capabilities.DataStore
	if store == nil {
		return nil, driver.Errorf("holdfast: %s %q: this backend stores no data with a lock: %w", op, h.Name(), errors.ErrUnsupported)
	}
	return store, h.dataErr(op)
}

// dataErr returns the error of a call for the data of a hold that has ended; nil for a live hold.
// Whatever ended the hold, for example a release, the error matches ErrLost.
func (h *Hold) dataErr(op string) error {
	switch err := h.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrLost):
		return driver.Errorf("holdfast: %s %q: %w", op, h.Name(), err)
	default:
		return driver.Errorf("holdfast: %s %q: %w: %w", op, h.Name(), driver.ErrLost, err)
	}
}

func (h *Hold) readData(ctx context.Context, store driver.DataStore) ([]byte, driver.DataRevision, error) {
	limited, cancel := context.WithTimeout(ctx, h.entry.Timing.RequestTimeout)
	defer cancel()
	data, revision, err := store.ReadData(limited, h.Name())
	if err == nil {
		if err = h.dataErr("read data"); err != nil { // the data may be the next holder's
			data = nil
		}
	}
	return data, revision, err
}

func (h *Hold) writeData(ctx context.Context, store driver.DataStore, w *writer, data []byte, revision driver.DataRevision) error {
	if err := driver.ValidateData(data, h.client.limits); err != nil {
		return err
	}
	if err := h.dataErr("write data"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, h.entry.Timing.RequestTimeout)
	defer cancel()
	// Promise 3: the backend compares the lease and the revision, and refuses a stale holder.
	err := store.WriteData(limited, h.Lease(), data, revision)
	if err == nil {
		w.writes = revision.Next().Writes
	}
	return err
}
