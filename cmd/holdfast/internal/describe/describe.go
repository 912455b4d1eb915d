// Package describe describes locks to people: the same words in every command and in the table.
package describe

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// State says whether a lock is held, and whether it is broken.
func State(r holdfast.Record) string {
	if r.Broken {
		return r.State.String() + ", broken: renewals are refused"
	}
	return r.State.String()
}

// Fact is a line about a lock.
type Fact struct{ Name, Value string }

// Facts are the lines about a lock that "holdfast status" and "holdfast top" show.
func Facts(r holdfast.Record) (facts []Fact) {
	fact := func(name, value string) { facts = append(facts, Fact{name, value}) }
	if r.State == driver.StateFree {
		if r.Owner != "" {
			fact("last owner", format.Text(r.Owner))
		}
		if r.Token != 0 {
			fact("last token", Token(r))
		}
	} else if len(r.Holders) > 0 {
		facts = append(facts, holderFacts(r)...)
	} else {
		fact("owner", Owner(r))
		fact("token", Token(r))
		fact("time left", Left(r)+ofTTL(r))
		fact("acquired", timeText(r.AcquiredAt))
		fact("renewed", timeText(r.RenewedAt))
		if r.Endless {
			fact("lease", lockview.Endless(r))
			fact("to free it", fmt.Sprintf("make sure that its holder has stopped, then: holdfast break %s",
				format.NameAndFlags(r.Name, TargetFlag(r))))
		}
	}
	if r.Waiters > 0 {
		fact("waiters", strconv.Itoa(r.Waiters))
	}
	if r.Data != nil {
		fact("data", fmt.Sprintf("%d bytes", len(r.Data)))
	}
	return facts
}

// Owner is the owner, or one of the holders of a shared lock and how many others there are.
func Owner(r holdfast.Record) string {
	owner, others := lockview.Latest(r).Owner, ""
	if n := len(r.Holders); n > 1 {
		others = fmt.Sprintf(" and %d more", n-1)
	}
	if owner == "" {
		return "unknown" + others
	}
	return format.Text(owner) + others
}

// Token is the token of the holder, or of the last one. Of several it is that of the latest.
func Token(r holdfast.Record) string {
	token := lockview.Latest(r).Token
	if token == 0 {
		return "unknown"
	}
	return strconv.FormatUint(token, 10)
}

// Left is the time left of the lease.
func Left(r holdfast.Record) string {
	switch {
	case r.Endless:
		return "never ends"
	case !r.RemainingKnown:
		return "unknown"
	}
	return format.Duration(r.Remaining)
}

func ofTTL(r holdfast.Record) string {
	if r.TTL == 0 {
		return ""
	}
	return " of " + driver.FormatDuration(r.TTL)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.Local().Format("2006-01-02 15:04:05.000 -0700")
}

// Before says who had the lock, one sentence for each.
func Before(r holdfast.Record) (all []string) {
	for _, t := range r.History {
		all = append(all, tenure(r, t))
	}
	return all
}

func tenure(r holdfast.Record, t driver.Tenure) string {
	owner := "An unknown owner"
	if t.Owner != "" {
		owner = format.Text(t.Owner)
	}
	text := owner + " had it"
	if t.Mode == driver.Shared {
		text = owner + " shared it"
	}
	if !t.From.IsZero() {
		text += " from " + At(r.ReadAt, t.From)
	}
	if !t.Until.IsZero() {
		text += " to " + At(r.ReadAt, t.Until)
	}
	if !t.From.IsZero() && !t.Until.IsZero() {
		text += " (" + format.Duration(t.Until.Sub(t.From)) + ")"
	}
	return text + fmt.Sprintf(", token %d: %s.", t.Token, lockview.Ended(t.End))
}

// At formats a time of the backend's clock: without the date if that is the day of read, when it was read.
func At(read, t time.Time) string {
	now := read
	if now.IsZero() {
		now = time.Now()
	}
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}
