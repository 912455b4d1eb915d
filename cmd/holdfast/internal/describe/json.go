package describe

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// LockJSON is the JSON form of a lock. Every field is always present; null means that the
// value is unknown or that there is none.
type LockJSON struct {
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
	Holders     []LockJSON `json:"holders,omitempty"` // of a shared lock
}

// JSON is the JSON form of a record.
func JSON(r holdfast.Record) LockJSON {
	lock := LockJSON{Name: r.Name, State: r.State.String(), Owner: format.NilIfZero(r.Owner), Token: format.NilIfZero(r.Token),
		AcquiredAt: format.NilIfZero(r.AcquiredAt), RenewedAt: format.NilIfZero(r.RenewedAt), Broken: r.Broken, Endless: r.Endless,
		Data: r.Data}
	if len(r.Data) == 0 { // some backends do not tell no data from none yet
		lock.Data = nil
	}
	if r.TTL > 0 {
		lock.TTLMs = new(int64)
		*lock.TTLMs = r.TTL.Milliseconds()
	}
	if r.RemainingKnown {
		lock.RemainingMs = new(int64)
		*lock.RemainingMs = r.Remaining.Milliseconds()
	}
	for _, h := range r.Holders {
		lock.Holders = append(lock.Holders, JSON(lockview.OfHolder(r, h)))
	}
	return lock
}
