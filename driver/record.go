package driver

import (
	"encoding/json"
	"time"
)

// State says whether a lock is held.
type State uint8

// The states of a lock. The zero value means that the backend did not report it.
const (
	StateUnknown State = iota
	StateFree
	StateHeld
)

// String returns "free", "held" or "unknown".
func (s State) String() string {
	switch s {
	case StateFree:
		return "free"
	case StateHeld:
		return "held"
	default:
		return "unknown"
	}
}

// Record is what a backend knows of a name at one moment. The zero value of a field means
// unknown (or none), so that an unknown fact is never mistaken for a known one.
type Record struct {
	Name  string
	State State
	// Holders are the holders of a lock that is held [Shared], in the order of their tokens. For an exclusive lock
	// it is empty: the fields below describe the one holder. For a shared lock they describe the latest grant,
	// but TTL is the longest of the holders, Remaining that of the lease that ends last, and Broken means that
	// all holders are broken.
	Holders []Holder
	// Owner of the present holder. For a free lock it is the last owner, if known.
	Owner string
	// Token of the last grant; 0 if it is unknown or there was no grant.
	Token uint64
	// TTL of the present holder's lease: the longest TTL that it was granted or renewed
	// for. A Revision that stays unchanged for this long means that the lease is over.
	TTL time.Duration
	// Remaining is how much of a held lock's lease was left on the backend's clock when it
	// answered. It has a meaning only if RemainingKnown is true. A lease that a driver lengthens, because the
	// clock advances in steps, has its TTL left at most.
	Remaining      time.Duration
	RemainingKnown bool
	// Endless means that the holder's lease never ends: the lock stays held until its holder releases it, or somebody
	// breaks it, which frees it at once. Holdfast takes no such lease; another program or a person did.
	Endless bool
	// AcquiredAt and RenewedAt are readings of the backend's clock. ReadAt is its reading when it
	// answered; only Inspect returns it.
	AcquiredAt time.Time
	RenewedAt  time.Time
	ReadAt     time.Time
	// Broken means that the holder's renewals are refused (see [Breaker]).
	Broken bool
	// Blocked says in words what keeps requests for the lock from an answer, whoever holds it: a transaction of another program that has
	// locked the record, and how to end it. Only a HeldError, and Inspect of a Locker that was opened for reading, have it.
	Blocked string
	// Waiters is how many waiters have a position in the lock's [Queue], and Position is that of
	// the waiter that asked, with a request or [BatchInspector]. Positions count from 1; without one it is 0.
	// Where all that have a position poll, because nothing wakes them, Waiters may be 0.
	Waiters, Position int
	// Data stored with the lock. The record of a HeldError may lack it.
	Data []byte
	// Revision changes with every grant and renewal. It is zero if the backend cannot
	// compare it.
	Revision Revision
	// History has the past holders, the latest first. The first one of a free lock is its last
	// holder, also if its lease has expired. Only Inspect returns it, and only a backend that keeps
	// it; see [Info.History].
	History []Tenure
}

// MarshalJSON writes every fact that is known, and leaves out what is unknown or none:
//
//	{"name":"billing","state":"held","owner":"host/1","token":7,"ttl":"30s",
//	 "remaining":"12.5s","acquiredAt":"2026-01-02T15:04:05Z",
//	 "renewedAt":"2026-01-02T15:04:25Z","readAt":"2026-01-02T15:04:26.5Z","broken":true,
//	 "endless":true,"waiters":2,"data":"aGVsbG8=","history":[{"owner":"host/2","token":6,"from":"…",
//	 "until":"…","end":"released"}]}
//
// A shared lock has "holders", too: a list of objects with the fields of a holder, as above.
//
// The state is "free", "held" or "unknown". Durations are as [time.ParseDuration] reads
// them, times as RFC 3339 has them, and data are base64. The Position is left out, because it
// is that of one Locker. The Revision is a secret and is never written; therefore a Record cannot be read back from JSON.
func (r Record) MarshalJSON() ([]byte, error) {
	out := struct {
		Name       string    `json:"name"`
		State      string    `json:"state"`
		Owner      string    `json:"owner,omitempty"`
		Token      uint64    `json:"token,omitempty"`
		Holders    []Holder  `json:"holders,omitempty"`
		TTL        string    `json:"ttl,omitempty"`
		Remaining  string    `json:"remaining,omitempty"`
		AcquiredAt time.Time `json:"acquiredAt,omitzero"`
		RenewedAt  time.Time `json:"renewedAt,omitzero"`
		ReadAt     time.Time `json:"readAt,omitzero"`
		Broken     bool      `json:"broken,omitempty"`
		Endless    bool      `json:"endless,omitempty"`
		Blocked    string    `json:"blocked,omitempty"`
		Waiters    int       `json:"waiters,omitempty"`
		Data       []byte    `json:"data,omitempty"`
		History    []Tenure  `json:"history,omitempty"`
	}{
		Name: r.Name, State: r.State.String(), Owner: r.Owner, Token: r.Token, Holders: r.Holders,
		AcquiredAt: r.AcquiredAt, RenewedAt: r.RenewedAt, ReadAt: r.ReadAt, Broken: r.Broken, Endless: r.Endless,
		Blocked: r.Blocked, Waiters: r.Waiters,
		Data: r.Data, History: r.History,
	}
	if r.TTL != 0 {
		out.TTL = r.TTL.String()
	}
	if r.RemainingKnown {
		out.Remaining = r.Remaining.String()
	}
	return json.Marshal(out)
}

// Revision stands for one holder and one renewal of its lease; see [Request.Replace]. No other grant or renewal has it, not
// even one that the store has forgotten in a fail-over: a number that only counts is not enough, it needs a time or a random part.
// Revisions are compared with ==. A Revision prints nothing of its content, which may be a
// secret.
type Revision struct{ mark hidden }

// NewRevision makes a Revision from whatever text a driver needs to compare.
func NewRevision(mark string) Revision { return Revision{hide(mark)} }

// Mark returns the text that NewRevision was given. It is for drivers.
func (r Revision) Mark() string { return r.mark.reveal() }

// IsZero reports whether there is no revision.
func (r Revision) IsZero() bool { return r == Revision{} }

// String hides the content.
func (r Revision) String() string {
	if r.IsZero() {
		return "no revision"
	}
	return "revision"
}

// GoString hides the content.
func (r Revision) GoString() string { return "driver.Revision(" + r.String() + ")" }
