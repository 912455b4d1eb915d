package driver

import "time"

// Info is what a Locker declares about its backend. Clients, commands, pages and the conformance suite follow
// the declaration. So what a backend cannot promise is declared, and never found out by its name or by a test.
//
// Backend, Expiry and Failover are required. Package lockertest refuses a Locker without them, and a Locker that
// declares more than it keeps, as far as a test can show it. Fields may be added; the zero value of a new field
// will mean what was so before.
type Info struct {
	// Backend is the name in errors, events and metrics, such as "mongodb". It is the same as [OpError.Backend].
	Backend string
	// Limits are what the backend accepts.
	Limits Limits
	// Modes are those in which the backend grants locks.
	Modes Modes
	// Expiry says who judges whether a lease has ended.
	Expiry Expiry
	// Failover says whether a grant outlives the server that acknowledged it.
	Failover Failover
	// Free says what the record of a lock keeps while nobody holds the lock.
	Free FreeRecord
	// History is how many past holders of a lock the backend keeps with it, by requests that are sent
	// anyway, and Inspect returns; see [Record.History]. 0 means none.
	History int
	// EndsUnknown says that the backend may lack the end of a tenure in its histories, and the time of the end.
	EndsUnknown bool
	// FixedTTL says that the backend fixes the length of a lease at the grant: a renewal with another TTL
	// extends the lease to that length.
	FixedTTL bool
	// Turn is how long a free lock is reserved for one waiter of its queue before the next may take it, too. A
	// Locker without a [Queue] may share the locks with others that queue. It is 0 if the backend has no queue.
	Turn time.Duration
	// WakesOnlyQueue says that the [Waker] wakes waiters in the [Queue], and nobody else.
	WakesOnlyQueue bool
	// WakesInPart says that the [Waker] reports some of the releases only, as one of two locks does. So
	// waking never comes into effect, and waiters go on polling.
	WakesInPart bool
}

// Watches reports whether the [Waker] of a Locker also wakes those that have no position in a queue.
func Watches(l Locker) bool { return l.Capabilities().Waker != nil && !l.Info().WakesOnlyQueue }

// Validate returns an *[InvalidError] that names the first field that is not declared, or has an impossible value.
func (i Info) Validate() error {
	switch {
	case i.Backend == "" || i.Backend == "unknown":
		return Invalid("Info.Backend", Quote(i.Backend), "the name of the backend in errors")
	case i.Expiry == 0 || i.Expiry > ByServer:
		return Invalid("Info.Expiry", i.Expiry.String(), "ByServer or ByObservation")
	case i.Failover == 0 || i.Failover > GrantsSurvive:
		return Invalid("Info.Failover", i.Failover.String(), "GrantsSurvive or GrantsMayBeForgotten")
	case i.Free.RemovedAfter < 0:
		return Invalid("Info.Free.RemovedAfter", FormatDuration(i.Free.RemovedAfter), "a time, or 0 for never")
	case i.Turn < 0:
		return Invalid("Info.Turn", FormatDuration(i.Turn), "a time, or 0 without a queue")
	}
	return ValidateHistory("Info.History", i.History)
}

// Caveats says in sentences what the backend does not promise, for people who rely on its locks. There are none if
// its clock judges leases and grants survive.
func (i Info) Caveats() (all []string) {
	if i.Failover == GrantsMayBeForgotten {
		all = append(all, "When a server of this backend crashes, a grant may be forgotten: two holders can then have one lock, "+
			"and a token can come twice.")
	}
	if i.Expiry == ByObservation {
		all = append(all, "This backend has no clock: the lock of a dead holder is taken over by a process that has seen no renewal "+
			"for the holder's whole TTL, so not by one that has just started.")
	}
	return all
}

// Limits are what a backend accepts. Fields may be added; the zero value of a new field
// will mean that there is no such limit.
type Limits struct {
	// MinTTL and MaxTTL bound a TTL, which must be a whole multiple of TTLStep.
	MinTTL, MaxTTL, TTLStep time.Duration
	// TTLNote, if not empty, ends the error about a TTL that is out of range. It says why
	// the range is what it is, and where another range applies.
	TTLNote string
	// MaxName, MaxOwner and MaxData are in bytes.
	MaxName, MaxOwner, MaxData int
	// Poll is the default interval at which a waiter asks the backend when nothing wakes
	// it. It is short if a call is free, and long if each call is billed.
	Poll time.Duration
}

// Expiry says who judges whether a lease has ended. The zero value means that it is not declared. A greater
// value promises more.
type Expiry uint8

const (
	// ByObservation is for a backend without a clock. A lease has ended when a Locker has seen no renewal of it
	// for its whole TTL, by the elapsed clock of its process. So the lock of a dead holder is taken over by a
	// process that has watched it for a TTL, never by one that has just started. Records do not say how much
	// of a lease is left, and waiters have no order.
	ByObservation Expiry = iota + 1
	// ByServer is for a backend with a clock of its own, which judges leases. Where several servers answer,
	// their clocks must agree within the grace of the leases.
	ByServer
)

// String returns "by the server", "by observation" or "not declared".
func (e Expiry) String() string {
	switch e {
	case ByServer:
		return "by the server"
	case ByObservation:
		return "by observation"
	default:
		return undeclared
	}
}

// Failover says whether a grant outlives the server that acknowledged it, when that crashes and another server
// takes over, or it starts again. The zero value means that it is not declared. A greater value promises more.
type Failover uint8

const (
	// GrantsMayBeForgotten: the servers that remain may not know of a grant that was acknowledged. So two
	// holders can have a lock after a fail-over, and the second one's token need not be greater.
	GrantsMayBeForgotten Failover = iota + 1
	// GrantsSurvive: an acknowledged grant, its token and every acknowledged renewal and release are known after a
	// fail-over, too. Nothing remains to fail over where all holders end with the backend.
	GrantsSurvive
)

// String returns "grants survive", "grants may be forgotten" or "not declared".
func (f Failover) String() string {
	switch f {
	case GrantsSurvive:
		return "grants survive"
	case GrantsMayBeForgotten:
		return "grants may be forgotten"
	default:
		return undeclared
	}
}

const undeclared = "not declared"

// FreeRecord is what the record of a lock keeps while nobody holds the lock, whether it was released or its
// lease has expired. Tokens rise whatever is kept.
type FreeRecord struct {
	// Token, Data and History say that Inspect returns them of a free lock. The next holder finds the data.
	Token, Data, History bool
	// RemovedAfter is how long after the end of the last lease the backend may remove the record, with all that
	// is in it. 0 means that it does not do so by itself.
	RemovedAfter time.Duration
}
