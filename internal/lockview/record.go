package lockview

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// OfHolder is the record of a shared lock as that of one of its holders.
func OfHolder(r driver.Record, h driver.Holder) driver.Record {
	return driver.Record{Name: r.Name, State: r.State, Owner: h.Owner, Token: h.Token, TTL: h.TTL, Remaining: h.Remaining,
		RemainingKnown: h.RemainingKnown, AcquiredAt: h.AcquiredAt, RenewedAt: h.RenewedAt, Broken: h.Broken, ReadAt: r.ReadAt}
}

// Latest is the record of a shared lock as that of the latest of its holders: the record's own owner and token can be
// those of one that has ended. Another record stays as it is.
func Latest(r driver.Record) driver.Record {
	if n := len(r.Holders); n > 0 {
		return OfHolder(r, r.Holders[n-1])
	}
	return r
}

// Left is the time left now of what was read at a time.
func Left(left time.Duration, read time.Time) time.Duration { return max(0, left-time.Since(read)) }

// Now is a record that was read at a time, with the time left now.
func Now(r *driver.Record, read time.Time) driver.Record {
	out := *r
	out.Remaining, out.Holders = Left(r.Remaining, read), slices.Clone(r.Holders)
	for i := range out.Holders {
		h := &out.Holders[i]
		h.Remaining = Left(h.Remaining, read)
	}
	return out
}

// Endless says of a lease that never ends who may have taken it, and how the lock becomes free.
func Endless(r driver.Record) string {
	text := "This lease never ends"
	if r.Owner == "" {
		text += ": another program or a person took it, not Holdfast"
	}
	return text + ". The lock stays held until it is released or broken."
}

// Ended says how a tenure ended.
func Ended(end driver.End) string {
	switch end {
	case driver.EndReleased:
		return "released"
	case driver.EndHandedOver:
		return "handed over to a waiter of its own process"
	case driver.EndExpired:
		return "not renewed in time, so its lease expired"
	case driver.EndTakenOver:
		return "taken over by a waiter, because its lease did not end by the backend's clock"
	case driver.EndBroken:
		return "broken by an operator"
	case driver.EndFreed:
		return "freed at once by an operator"
	case driver.EndUnknown:
	}
	return "how it ended is not known"
}
