package driver

import (
	"encoding/json"
	"fmt"
	"time"
)

// Mode says with whom a holder shares a lock.
type Mode uint8

const (
	// Exclusive: nobody else holds the lock.
	Exclusive Mode = iota
	// Shared: any number of holders, all of them Shared, each with a lease and a token of its own.
	Shared
)

const (
	// MaxHolders is how many holders a [Shared] lock has at most: all of them are in one record, which each
	// renewal reads and writes. A further request is refused until one of them has ended.
	MaxHolders = 1000
	// MaxSharedOwner is the longest owner of a [Shared] holder, in bytes, for the same reason.
	MaxSharedOwner = 128
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	default:
		return fmt.Sprintf("mode %d", uint8(m))
	}
}

// Modes are the modes in which a backend grants locks. Every backend knows [Exclusive].
type Modes struct {
	Shared bool
}

// Has reports whether a mode is one of them.
func (m Modes) Has(mode Mode) bool { return mode == Exclusive || mode == Shared && m.Shared }

// String returns "exclusive", or "exclusive or shared".
func (m Modes) String() string {
	if m.Shared {
		return "exclusive or shared"
	}
	return "exclusive"
}

// Holder is one of the holders of a lock that is held [Shared]. Its fields are those of a [Record], for this
// holder alone.
type Holder struct {
	Owner          string
	Token          uint64
	TTL            time.Duration
	Remaining      time.Duration
	RemainingKnown bool
	AcquiredAt     time.Time
	RenewedAt      time.Time
	Broken         bool
}

// MarshalJSON writes the fields as [Record.MarshalJSON] does.
func (h Holder) MarshalJSON() ([]byte, error) {
	out := struct {
		Owner      string    `json:"owner,omitempty"`
		Token      uint64    `json:"token,omitempty"`
		TTL        string    `json:"ttl,omitempty"`
		Remaining  string    `json:"remaining,omitempty"`
		AcquiredAt time.Time `json:"acquiredAt,omitzero"`
		RenewedAt  time.Time `json:"renewedAt,omitzero"`
		Broken     bool      `json:"broken,omitempty"`
	}{Owner: h.Owner, Token: h.Token, AcquiredAt: h.AcquiredAt, RenewedAt: h.RenewedAt, Broken: h.Broken}
	if h.TTL != 0 {
		out.TTL = h.TTL.String()
	}
	if h.RemainingKnown {
		out.Remaining = h.Remaining.String()
	}
	return json.Marshal(out)
}
