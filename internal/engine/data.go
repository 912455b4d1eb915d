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
	busy   chan struct{} // capacity 1: taken by the call that writes
	writes uint64        // known writes of the data since the lock was acquired
}

// writeAttempts is how often a write is attempted when the data have changed.
const writeAttempts = 6

// ReadData returns the data stored with the lock.
func (h *Hold) ReadData(ctx context.Context) ([]byte, error) {
	if err := cause.Check(ctx); err != nil {
		return nil, err
	}
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
	if err := h.checkWrite(ctx); err != nil {
		return err
	}
	return h.writeInTurn(ctx, "write data", false, func([]byte) ([]byte, error) { return data, nil })
}

// UpdateData reads the data stored with the lock, and writes what update returns.
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	if err := h.checkWrite(ctx); err != nil {
		return err
	}
	if update == nil {
		return driver.Invalid("update", "nil", "a function")
	}
	return h.writeInTurn(ctx, "update data", true, update)
}

// checkWrite refuses what is certain before any request: the data of a shared lock belong to all of its holders.
func (h *Hold) checkWrite(ctx context.Context) error {
	if h.Mode() == driver.Shared {
		return driver.Invalid("Mode", driver.Shared.String(), driver.Exclusive.String()+" to write the data of the lock")
	}
	return cause.Check(ctx)
}

// writeInTurn waits for the calls that write before, and writes what update makes of the data. It
// tries again if the write was refused because the data had changed. A backend may return old data
// for a moment, for example after a change of its primary, so there is a backoff.
func (h *Hold) writeInTurn(ctx context.Context, op string, read bool, update func(old []byte) ([]byte, error)) error {
	if h.writer.Load() == nil {
		h.writer.CompareAndSwap(nil, &writer{busy: make(chan struct{}, 1)})
	}
	w := h.writer.Load()
	select {
	case w.busy <- struct{}{}:
	default:
		select {
		case w.busy <- struct{}{}:
		case <-ctx.Done():
			return driver.Errorf("%s %q: %w", op, h.Name(), ctx.Err()) // not its cause, which may be the loss of another lock
		}
	}
	defer func() { <-w.busy }()
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
		return nil, driver.Errorf("%s %q: this backend stores no data with a lock: %w", op, h.Name(), errors.ErrUnsupported)
	}
	return store, h.dataErr(op)
}

// dataErr returns the error of a call for the data of a hold that has ended; nil for a live hold.
// The error matches ErrLost, also after a release. A hold whose context was canceled, but whose
// lease is still renewed, counts as live: its work may store a last result.
func (h *Hold) dataErr(op string) error {
	if err := h.LeaseErr(); err != nil {
		return driver.Errorf("%s %q: %w", op, h.Name(), err)
	}
	if h.release.Load() != nil {
		return driver.Errorf("%s %q: %w: %w", op, h.Name(), driver.ErrLost, cause.ErrReleased)
	}
	return nil
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
	if err := driver.ValidateData(data, h.client.info.Limits); err != nil {
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
