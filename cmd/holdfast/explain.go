package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
)

type explainCmd struct {
	Name string `arg:"" help:"Name of the lock."`
	JSON bool   `help:"Write one JSON object: the fields of \"holdfast status --json\", and readAt, clockOffsetMs and clockErrorMs (the backend's clock less this machine's), waiters, history and explanation."`
}

// Help is shown above the flags.
func (*explainCmd) Help() string {
	return `Says in sentences who holds the lock, since when and whether it is still renewed, who had it before and how that ended, how many
wait, how the backend's clock differs from this machine's, and what would free the lock. The exit code is 0 whether the lock is held or
free.

The backend's URL sets how many past holders are kept, as in ?history=16 (default: 8). Azure shows how a tenure ended only until the lock
is held again.

Example: how the last holder ended

    holdfast explain nightly-report --json | jq -r '.history[0].end'`
}

// Validate is called by the parser.
func (e *explainCmd) Validate() error { return checkName(e.Name) }

// Run explains one lock.
func (e *explainCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		asked := time.Now()
		record, err := client.Inspect(ctx, e.Name)
		answered := time.Now()
		if err != nil {
			return err
		}
		record.Name = e.Name
		seen := a.lookFurther(ctx, client, record)
		x := &explanation{Record: record, missing: seen.missing, slots: seen.slots,
			can: client.Capabilities(), info: client.Info(), backend: displayBackend(a.backend), flag: a.backendFlag}
		x.readClock(asked, answered)
		if e.JSON {
			return writeJSON(a.stdout, x.toJSON())
		}
		return x.write(a.stdout)
	})
}

// explanation is a record, and what can be said of it.
type explanation struct {
	holdfast.Record
	missing string            // as missingStore returns it
	slots   []holdfast.Record // of a lock with slots, or nil
	can     driver.Capabilities
	info    driver.Info
	backend string // for messages
	flag    string // the URL of --backend, or ""
	// ahead is the backend's clock less this machine's, give or take clockError. Both are zero without
	// a reading of the backend's clock.
	ahead, clockError time.Duration
}

// readClock compares the clocks. The backend has answered at some moment of the call.
func (x *explanation) readClock(asked, answered time.Time) {
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

func (x *explanation) sections() []section {
	if x.slots != nil {
		return x.ofSlots()
	}
	all := []section{{heading: "Now", sentences: x.present()}}
	if len(x.Holders) > 0 {
		all = append(all, section{heading: "Holders", sentences: x.holders(), list: true})
	}
	if len(x.History) > 0 {
		all = append(all, section{heading: "Before", sentences: describe.Before(x.Record), list: true})
	} else if x.info.History == 0 {
		all = append(all, section{heading: "Before", sentences: []string{"This backend keeps no past holders."}})
	}
	way, command := x.wayOut()
	return append(all, section{heading: "Waiting", sentences: []string{x.waiting()}},
		section{heading: "Clock", sentences: []string{x.clock()}},
		section{heading: "What would free it", sentences: way, command: command})
}

// ofSlots says who holds the slots of a lock. Each has a record and past holders of its own.
func (x *explanation) ofSlots() []section {
	said := []string{fmt.Sprintf("%s has slots: %s.", format.Text(x.Name), heldSlots(x.slots))}
	example := x.Name
	for _, slot := range x.slots {
		text := format.Text(slot.Name) + " is " + describe.State(slot)
		if slot.State == driver.StateHeld {
			example = slot.Name
			one := &explanation{Record: slot}
			text = fmt.Sprintf("%s is held by %s, token %s", format.Text(slot.Name), one.holder(), describe.Token(slot))
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
		}, command: x.command("explain") + " " + format.ShellWord(example)}}
}

// present says who holds the lock, and whether the holder seems to live.
func (x *explanation) present() []string {
	name := format.Text(x.Name)
	switch {
	case x.missing != "":
		return []string{name + " is free, but " + noLocksYet(x.missing) + ". The URL may be wrong."}
	case x.State == driver.StateFree && x.Token == 0 && len(x.History) == 0:
		said := []string{name + " is free. The backend has no record of a holder."}
		if after := x.info.Free.RemovedAfter; after > 0 {
			said = append(said, "It removes the record of a lock that was free for "+driver.FormatDuration(after)+".")
		}
		return said
	case x.State == driver.StateFree:
		return []string{fmt.Sprintf("%s is free. The last token is %s.", name, describe.Token(x.Record))}
	case x.State == driver.StateUnknown:
		return []string{"Whether " + name + " is held is unknown."}
	}
	if len(x.Holders) > 0 {
		return x.presentHolders()
	}
	said := []string{fmt.Sprintf("%s is held by %s, token %s.", name, x.holder(), describe.Token(x.Record))}
	if !x.AcquiredAt.IsZero() {
		said = append(said, "It has been held since "+describe.At(x.ReadAt, x.AcquiredAt)+x.ago(x.AcquiredAt, " (", " ago)")+".")
	}
	if x.Endless {
		said = append(said, describe.Endless(x.Record))
	} else if x.RenewedAt.IsZero() {
		said = append(said, "The backend does not say when the lease was last renewed.")
	} else if x.RenewedAt.Equal(x.AcquiredAt) {
		said = append(said, "It has not been renewed yet.")
	} else {
		said = append(said, "It was last renewed at "+describe.At(x.ReadAt, x.RenewedAt)+x.ago(x.RenewedAt, ", ", " ago")+".")
	}
	if x.info.Failover == driver.GrantsMayBeForgotten {
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
func (x *explanation) late() bool {
	return x.RemainingKnown && x.TTL > 0 && x.Remaining < x.TTL/2
}

func (x *explanation) holder() string {
	if x.Owner == "" {
		return "an unknown owner"
	}
	return format.Text(x.Owner)
}

func (x *explanation) waiting() string {
	switch {
	case x.can.Queue == nil:
		return "This backend has no queue, so it is unknown who waits."
	case x.Waiters == 0:
		return "Nobody has a position in the queue."
	case x.Waiters == 1:
		return "One process has a position in the queue. It gets the lock next."
	default:
		return fmt.Sprintf("%d processes have a position in the queue. They get the lock in the order in which they came.", x.Waiters)
	}
}

func (x *explanation) clock() string {
	if x.info.Expiry == driver.ByObservation {
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
func (x *explanation) wayOut() (said []string, command string) {
	switch {
	case x.State == driver.StateFree && x.Waiters > 0:
		return []string{"It is free, and reserved for a moment for the first of those that wait."}, ""
	case x.State == driver.StateFree:
		return []string{"It is free: the next request gets it."}, ""
	case len(x.Holders) > 0:
		return x.wayOutOfHolders()
	case x.Endless:
		said = append(said, "Its holder frees it by a release. Nothing else does: find out who took the lease, and stop that first.")
	case x.info.Expiry == driver.ByObservation:
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
	if x.can.Breaker == nil {
		return said, ""
	}
	note := x.sameBackend()
	command = x.command("break") + " " + format.ShellWord(x.Name) + " " + describe.TargetFlag(x.Record)
	switch {
	case x.Endless:
		return append(said, "This frees it at once, and does not notify its holder"+note+":"), command
	case x.Token == 0 && !x.Broken:
		said = append(said, "The token of its holder is unknown: the holder acquired the lock a moment ago, or another program took the lease.")
	}
	if x.Broken {
		return append(said, "If the holder is certainly dead, this frees it at once"+note+":"), command + " --now"
	}
	return append(said, "This takes it from its holder"+note+":"), command
}

// command begins a command line for the same backend, unless its URL has a secret.
func (x *explanation) command(name string) string {
	if x.flag == "" || x.sameBackend() != "" {
		return "holdfast " + name
	}
	return "holdfast " + name + " -b " + format.ShellWord(x.flag)
}

// sameBackend says that a command needs the flag that is not repeated.
func (x *explanation) sameBackend() string {
	if secretPattern().MatchString(x.flag) {
		return ", with the same --backend"
	}
	return ""
}

// when is the moment at which the lease ends.
func (x *explanation) when() string {
	if x.ReadAt.IsZero() {
		return ""
	}
	return ", at " + describe.At(x.ReadAt, x.ReadAt.Add(x.Remaining))
}

// ofTTL is the TTL in parentheses, or "" if it is unknown.
func (x *explanation) ofTTL() string {
	if x.TTL == 0 {
		return ""
	}
	return " (" + driver.FormatDuration(x.TTL) + ")"
}

func (x *explanation) atMost() string {
	if x.TTL == 0 {
		return ", at a time that the backend does not report"
	}
	return " at most " + driver.FormatDuration(x.TTL) + " after the last renewal"
}

// ago is how long a time is past by the backend's clock, or "" if that is unknown.
func (x *explanation) ago(t time.Time, before, after string) string {
	if x.ReadAt.IsZero() || x.ReadAt.Before(t) {
		return ""
	}
	return before + format.Duration(x.ReadAt.Sub(t)) + after
}

// explainWidth is the width of a terminal that shows whole lines.
const explainWidth = 80

// write writes the sections, each with its heading in a line of its own.
func (x *explanation) write(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "On %s:\n", format.Text(x.backend))
	for _, s := range x.sections() {
		fmt.Fprintf(&out, "\n%s\n", s.heading)
		if s.list {
			for _, item := range s.sentences {
				wrap(&out, item, "  - ", "    ")
			}
		} else {
			wrap(&out, strings.Join(s.sentences, " "), "  ", "  ")
		}
		if s.command != "" {
			out.WriteString("    " + s.command + "\n")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// wrap writes words in lines that are not wider than the terminal, if no word is.
func wrap(out *strings.Builder, text, first, indent string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > explainWidth-1 {
			out.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	out.WriteString(line + "\n")
}
