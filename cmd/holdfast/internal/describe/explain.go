package describe

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// Explanation is a lock, and what can be said of it.
type Explanation struct {
	Lock
	Can        driver.Capabilities
	Info       driver.Info
	Backend    string // for messages
	Flag       string // the URL of --backend, or ""
	FlagSecret bool   // Flag may hold a secret, and must not be shown
	// ahead is the backend's clock less this machine's, give or take clockError. Both are zero without
	// a reading of the backend's clock.
	ahead, clockError time.Duration
}

// ReadClock compares the clocks. The backend has answered at some moment of the call.
func (x *Explanation) ReadClock(asked, answered time.Time) {
	if x.ReadAt.IsZero() {
		return
	}
	half := answered.Sub(asked) / 2
	read := x.ReadAt
	resolution := time.Millisecond
	if read.Nanosecond() == 0 { // the clock shows whole seconds, cut off
		resolution = time.Second
	}
	read = read.Add(resolution / 2)
	x.ahead, x.clockError = read.Sub(asked.Round(0).Add(half)), half+resolution/2
}

// section is a heading and its sentences. Each item of a list begins a line, and so does a command that
// the last sentence speaks of.
type section struct {
	heading   string
	sentences []string
	list      bool
	command   string
}

func (x *Explanation) sections() []section {
	if x.Slots != nil {
		return x.ofSlots()
	}
	all := []section{{heading: "Now", sentences: x.present()}}
	if len(x.Holders) > 0 {
		all = append(all, section{heading: "Holders", sentences: x.holders(), list: true})
	}
	if len(x.History) > 0 {
		all = append(all, section{heading: "Before", sentences: Before(x.Record), list: true})
	} else if x.Info.History == 0 {
		all = append(all, section{heading: "Before", sentences: []string{"This backend keeps no past holders."}})
	}
	way, command := x.wayOut()
	return append(all, section{heading: "Waiting", sentences: []string{x.waiting()}},
		section{heading: "Clock", sentences: []string{x.clock()}},
		section{heading: "What would free it", sentences: way, command: command})
}

// ofSlots says who holds the slots of a lock. Each has a record and past holders of its own.
func (x *Explanation) ofSlots() []section {
	said := []string{fmt.Sprintf("%s has slots: %s.", format.Text(x.Name), heldSlots(x.Slots))}
	example := x.Name
	for _, slot := range x.Slots {
		text := format.Text(slot.Name) + " is " + State(slot)
		if slot.State == driver.StateHeld {
			example = slot.Name
			one := &Explanation{Lock: Lock{Record: slot}}
			text = fmt.Sprintf("%s is held by %s, token %s", format.Text(slot.Name), one.holder(), Token(slot))
			if slot.RemainingKnown {
				text += ", " + format.Duration(slot.Remaining) + " left unless renewed"
			}
			if slot.Endless {
				text += ", its lease never ends"
			}
			if slot.Broken {
				text += ", broken"
			}
		}
		said = append(said, text+".")
	}
	return []section{{heading: "Now", sentences: said, list: true},
		{heading: "Clock", sentences: []string{x.clock()}},
		{heading: "What would free it", sentences: []string{
			"The holder of a slot frees it by a release. If the holder no longer renews it, it becomes free when its lease ends.",
			"A slot without a record was never held. Each slot is a lock with past holders of its own; this explains one" + x.sameBackend() + ":",
		}, command: x.command("explain") + " " + format.NameAndFlags(example, "")}}
}

// present says who holds the lock, and whether the holder seems to live.
func (x *Explanation) present() []string {
	name := format.Text(x.Name)
	switch {
	case x.Missing != "":
		return []string{name + " is free, but " + NoLocksYet(x.Missing) + ". The URL may be wrong."}
	case x.State == driver.StateFree && x.Token == 0 && len(x.History) == 0:
		said := []string{name + " is free. The backend has no record of a holder."}
		if after := x.Info.Free.RemovedAfter; after > 0 {
			said = append(said, "It removes the record of a lock that was free for "+driver.FormatDuration(after)+".")
		}
		return said
	case x.State == driver.StateFree:
		return []string{fmt.Sprintf("%s is free. The last token is %s.", name, Token(x.Record))}
	case x.State == driver.StateUnknown:
		return []string{"Whether " + name + " is held is unknown."}
	}
	if len(x.Holders) > 0 {
		return x.presentHolders()
	}
	said := []string{fmt.Sprintf("%s is held by %s, token %s.", name, x.holder(), Token(x.Record))}
	if !x.AcquiredAt.IsZero() {
		said = append(said, "It has been held since "+At(x.ReadAt, x.AcquiredAt)+x.ago(x.AcquiredAt, " (", " ago)")+".")
	}
	if x.Endless {
		said = append(said, lockview.Endless(x.Record))
	} else if x.RenewedAt.IsZero() {
		said = append(said, "The backend does not say when the lease was last renewed.")
	} else if x.RenewedAt.Equal(x.AcquiredAt) {
		said = append(said, "It has not been renewed yet.")
	} else {
		said = append(said, "It was last renewed at "+At(x.ReadAt, x.RenewedAt)+x.ago(x.RenewedAt, ", ", " ago")+".")
	}
	if x.Info.Failover == driver.GrantsMayBeForgotten {
		said = append(said, "This backend may forget a grant when a server crashes, so another may believe to hold it, too.")
	}
	if x.Broken {
		said = append(said, "It was broken: the backend refuses its renewals.")
	} else if x.late() {
		said = append(said, fmt.Sprintf("Holders usually renew after a third of the TTL (%s), so this one may be dead, paused or cut off from "+
			"the backend.",
			driver.FormatDuration(x.TTL)))
	}
	return said
}

// late reports whether a renewal is overdue, with the time for one that has failed.
func (x *Explanation) late() bool {
	return x.RemainingKnown && x.TTL > 0 && x.Remaining < x.TTL/2
}

func (x *Explanation) holder() string {
	if x.Owner == "" {
		return "an unknown owner"
	}
	return format.Text(x.Owner)
}

func (x *Explanation) waiting() string {
	switch {
	case x.Can.Queue == nil:
		return "This backend has no queue, so it is unknown who waits."
	case x.Waiters == 0:
		return "Nobody has a position in the queue."
	case x.Waiters == 1:
		return "One waiter has a position in the queue. It gets the lock next."
	default:
		return fmt.Sprintf("%d waiters have a position in the queue. They get the lock in the order in which they came.", x.Waiters)
	}
}

func (x *Explanation) clock() string {
	if x.Info.Expiry == driver.ByObservation {
		return "The backend has no clock. Each process judges a lease by the time for which it has seen no renewal."
	}
	if x.ReadAt.IsZero() {
		return "The backend does not report its clock."
	}
	give := "±" + format.ShortDuration(x.clockError)
	if x.ahead.Abs() <= x.clockError {
		return "The backend's clock agrees with this machine's (" + give + "). Only the backend's counts for a lease."
	}
	side := "ahead of"
	if x.ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("The backend's clock is %s %s this machine's (%s). Only the backend's counts for a lease. Times above are by that "+
		"clock.",
		format.ShortDuration(x.ahead.Abs()), side, give)
}

// wayOut says what would free the lock, or who gets a free one.
func (x *Explanation) wayOut() (said []string, command string) {
	switch {
	case x.State == driver.StateFree && x.Waiters > 0 && x.Blocked == "":
		return []string{"It is free, and reserved for a moment for the first of those that wait."}, ""
	case x.State == driver.StateFree && x.Blocked != "":
		return []string{"Its record is free, but requests wait: " + x.Blocked + "."}, ""
	case x.State == driver.StateFree:
		return []string{"It is free: the next request gets it."}, ""
	case len(x.Holders) > 0:
		return x.wayOutOfHolders()
	case x.Endless:
		said = append(said, "Its holder frees it by a release. Nothing else does: find out who took the lease, and stop that first.")
	case x.Info.Expiry == driver.ByObservation:
		if x.Broken {
			said = append(said, "Its holder may release it.")
		} else {
			said = append(said, "Its holder frees it by a release.")
		}
		said = append(said, "Otherwise a process takes it over that has seen no renewal for the whole TTL"+x.ofTTL()+
			". One that has just started waits for so long first.")
	case x.Broken && x.RemainingKnown:
		said = append(said, "Its holder may release it. Otherwise it becomes free when the lease ends, in "+format.Duration(x.Remaining)+x.when()+
			".")
	case x.Broken:
		said = append(said, "Its holder may release it. Otherwise it becomes free when the lease ends"+x.atMost()+".")
	case x.RemainingKnown:
		said = append(said, "Its holder frees it by a release. If the holder no longer renews it, it becomes free when the lease ends, in "+
			format.Duration(x.Remaining)+x.when()+".")
	default:
		said = append(said, "Its holder frees it by a release. If the holder no longer renews it, it becomes free when the lease ends"+x.atMost()+
			".")
	}
	if x.Blocked != "" {
		said = append(said, "Requests and renewals wait: "+x.Blocked+".")
	}
	if x.Can.Breaker == nil {
		return said, ""
	}
	note := x.sameBackend()
	flags := TargetFlag(x.Record)
	breaking := func() string { return x.command("break") + " " + format.NameAndFlags(x.Name, flags) }
	switch {
	case x.Endless:
		return append(said, "This frees it at once, and does not notify its holder"+note+":"), breaking()
	case x.Token == 0 && !x.Broken:
		said = append(said, "The token of its holder is unknown: the holder acquired the lock a moment ago, or another program took the lease.")
	}
	if x.Broken {
		flags += " --now"
		return append(said, "If the holder is certainly dead, this frees it at once"+note+":"), breaking()
	}
	return append(said, "This takes it from its holder"+note+":"), breaking()
}

// command begins a command line for the same backend, unless its URL has a secret.
func (x *Explanation) command(name string) string {
	if x.Flag == "" || x.sameBackend() != "" {
		return "holdfast " + name
	}
	return "holdfast " + name + " -b " + format.ShellWord(x.Flag)
}

// sameBackend says that a command needs the flag that is not repeated.
func (x *Explanation) sameBackend() string {
	if x.FlagSecret {
		return ", with the same --backend"
	}
	return ""
}

// when is the moment at which the lease ends.
func (x *Explanation) when() string {
	if x.ReadAt.IsZero() {
		return ""
	}
	return ", at " + At(x.ReadAt, x.ReadAt.Add(x.Remaining))
}

// ofTTL is the TTL in parentheses, or "" if it is unknown.
func (x *Explanation) ofTTL() string {
	if x.TTL == 0 {
		return ""
	}
	return " (" + driver.FormatDuration(x.TTL) + ")"
}

func (x *Explanation) atMost() string {
	if x.TTL == 0 {
		return ", at a time that the backend does not report"
	}
	return " at most " + driver.FormatDuration(x.TTL) + " after the last renewal"
}

// ago is how long a time is past by the backend's clock, or "" if that is unknown.
func (x *Explanation) ago(t time.Time, before, after string) string {
	if x.ReadAt.IsZero() || x.ReadAt.Before(t) {
		return ""
	}
	return before + format.Duration(x.ReadAt.Sub(t)) + after
}

// Write writes the sections, each with its heading in a line of its own.
func (x *Explanation) Write(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "On %s:\n", format.Text(x.Backend))
	for _, s := range x.sections() {
		fmt.Fprintf(&out, "\n%s\n", s.heading)
		if s.list {
			for _, item := range s.sentences {
				format.Wrap(&out, item, "  - ", "    ")
			}
		} else {
			format.Wrap(&out, strings.Join(s.sentences, " "), "  ", "  ")
		}
		if s.command != "" {
			out.WriteString("    " + s.command + "\n")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
