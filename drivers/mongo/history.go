package mongo

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// A grant adds the fields of the lease before it to the array history, as they are, and the reader
// finds out how that tenure ended. So the server has little to do for it.
//
// A release, a break and a BreakNow leave the time, and a grant resets the three times.

// tenure is one past lease, as the server stored it.
type tenure struct {
	owner             string
	token             int64
	acquired, expires time.Time
	ends              ends
	held              bool
	taken             time.Time
	takenBy           string
	// Of a reader.
	until time.Time
	end   int64
}

// ends are the times at which a lease was released, broken and freed. No time of the lease itself decides about
// them: the clock of the member that granted the lock may be ahead.
type ends struct{ released, broken, freed time.Time }

// read reads one of the fields. A damaged value counts as absent.
func (e *ends) read(name string, v bson.RawValue) {
	switch name {
	case fieldReleasedAt, pastReleased:
		e.released = dateOrZero(v)
	case fieldBrokenAt, pastBroken:
		e.broken = dateOrZero(v)
	case fieldFreedAt, pastFreed:
		e.freed = dateOrZero(v)
	}
}

// tenure returns how the lease ended.
func (t tenure) describe() driver.Tenure {
	out := driver.Tenure{Owner: t.owner, Token: uint64(t.token), From: t.acquired}
	if !t.until.IsZero() {
		out.Until, out.End, out.Mode = later(t.until, t.acquired), driver.End(t.end), driver.Shared
		return out
	}
	freed := !t.ends.freed.IsZero()
	switch {
	case freed:
		out.End, out.Until = driver.EndFreed, t.ends.freed
	case !t.ends.released.IsZero():
		out.End, out.Until = driver.EndReleased, t.ends.released
	case !t.held: // its times are damaged
		out.Until = t.expires
	case t.takenBy != "" && t.taken.Before(t.expires):
		out.End, out.Until = driver.EndHandedOver, t.taken
		if t.takenBy == takenByReplace {
			out.End = driver.EndTakenOver
		}
	default:
		out.End, out.Until = driver.EndExpired, t.expires
	}
	if !t.ends.broken.IsZero() && !freed {
		out.End = driver.EndBroken // also if its holder released the lock then
	}
	if !out.Until.IsZero() {
		out.Until = later(out.Until, out.From) // the clocks of two members can differ
	}
	return out
}

// decodeTenure reads an element of the history, and reports false for one that is damaged: nothing
// depends on a history.
func decodeTenure(v bson.RawValue) (t tenure, ok bool) {
	raw, ok := v.DocumentOK()
	if !ok {
		return t, false
	}
	elements, err := elementsOf(raw)
	if err != nil {
		return t, false
	}
	d := decoder{}
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case pastOwner:
			d.text(fieldHistory, v, &t.owner)
		case pastToken:
			d.number(fieldHistory, v, &t.token)
		case pastAcquired:
			d.date(fieldHistory, v, &t.acquired)
		case pastExpires:
			d.date(fieldHistory, v, &t.expires)
		case pastHeld:
			d.boolean(fieldHistory, v, &t.held)
		case pastTaken:
			d.date(fieldHistory, v, &t.taken)
		case pastTakenBy:
			d.text(fieldHistory, v, &t.takenBy)
		case pastUntil:
			d.date(fieldHistory, v, &t.until)
		case pastEnd:
			d.number(fieldHistory, v, &t.end)
			d.check(fieldHistory, t.end >= 0 && t.end <= int64(driver.EndFreed), "is out of range")
		default:
			t.ends.read(e.Key(), v)
		}
	}
	return t, d.problem == "" && t.token > 0
}

// historyOf splits the array of a history. A damaged one is empty.
func historyOf(v bson.RawValue) []bson.RawValue {
	array, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	elements, err := elementsOf(bson.Raw(array))
	if err != nil {
		return nil
	}
	values := make([]bson.RawValue, len(elements))
	for i, e := range elements {
		values[i] = e.Value()
	}
	return values
}
