package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
)

// writeJSON writes one value on one line.
func writeJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// lockJSON is the JSON form of a lock. Every field is always present; null means that the
// value is unknown or that there is none.
type lockJSON struct {
	Name        string     `json:"name"`
	State       string     `json:"state"` // "held", "free" or "unknown"
	Owner       *string    `json:"owner"` // of a free lock: the last owner
	Token       *uint64    `json:"token"`
	TTLMs       *int64     `json:"ttlMs"`             // milliseconds
	RemainingMs *int64     `json:"remainingMs"`       // milliseconds, by the backend's clock
	AcquiredAt  *time.Time `json:"acquiredAt"`        // by the backend's clock
	RenewedAt   *time.Time `json:"renewedAt"`         // by the backend's clock
	Broken      bool       `json:"broken"`            // renewals are refused
	Endless     bool       `json:"endless"`           // the lease never ends
	Data        []byte     `json:"data"`              // base64
	Holders     []lockJSON `json:"holders,omitempty"` // of a shared lock
}

func lockToJSON(r holdfast.Record) lockJSON {
	lock := lockJSON{Name: r.Name, State: r.State.String(), Owner: nilIfZero(r.Owner), Token: nilIfZero(r.Token),
		AcquiredAt: nilIfZero(r.AcquiredAt), RenewedAt: nilIfZero(r.RenewedAt), Broken: r.Broken, Endless: r.Endless,
		Data: r.Data}
	if r.TTL > 0 {
		lock.TTLMs = new(int64)
		*lock.TTLMs = r.TTL.Milliseconds()
	}
	if r.RemainingKnown {
		lock.RemainingMs = new(int64)
		*lock.RemainingMs = r.Remaining.Milliseconds()
	}
	for _, h := range r.Holders {
		lock.Holders = append(lock.Holders, lockToJSON(describe.OfHolder(r, h)))
	}
	return lock
}

// nilIfZero returns nil for the zero value, which in a Record means unknown.
func nilIfZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
