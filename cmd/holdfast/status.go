package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
)

type statusCmd struct {
	Name string `arg:"" help:"Name of the lock."`
	JSON bool   `help:"Write one JSON object. ttlMs and remainingMs are in milliseconds, data is base64, and an unknown value is null. slots is null unless a slot other than the first is held, and missing unless the folder, collection or container does not exist."`
}

// Help is shown above the flags.
func (*statusCmd) Help() string {
	return `The exit code is 0 whether the lock is held or free. Times are by the backend's clock. Of a lock with slots all slots are shown
that were ever held; the fields of --json outside of slots are those of the first.

The right to read is enough. If the backend's folder, collection or container does not exist, the output says so: the URL may be wrong.

Example: the milliseconds until the holder's lease expires, unless it is renewed

    holdfast status nightly-report --json | jq .remainingMs`
}

// Validate is called by the parser.
func (s *statusCmd) Validate() error { return checkName(s.Name) }

// Run shows the record of one lock.
func (s *statusCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		record, err := client.Inspect(ctx, s.Name)
		if err != nil {
			return err
		}
		record.Name = s.Name
		seen := a.lookFurther(ctx, client, record)
		switch {
		case s.JSON:
			return writeJSON(a.stdout, seen.toJSON())
		case seen.slots != nil:
			return writeSlots(a.stdout, displayBackend(a.backend), seen)
		}
		return writeStatus(a.stdout, displayBackend(a.backend), seen)
	})
}

// statusJSON is lockJSON with what status adds.
type statusJSON struct {
	lockJSON
	Slots   []lockJSON `json:"slots"`
	Missing *string    `json:"missing"`
}

func (l lookedAt) toJSON() statusJSON {
	out := statusJSON{lockJSON: lockToJSON(l.Record), Missing: nilIfZero(l.missing)}
	for _, slot := range l.slots {
		out.Slots = append(out.Slots, lockToJSON(slot))
	}
	return out
}

// writeSlots shows a lock with slots.
func writeSlots(w io.Writer, backend string, l lookedAt) error {
	if _, err := fmt.Fprintf(w, "%s: %s\n  backend  %s\n\n", format.Text(l.Name), heldSlots(l.slots), format.Text(backend)); err != nil {
		return err
	}
	write, flush := lockTable(w)
	for _, slot := range l.slots {
		if err := write(slot); err != nil {
			return err
		}
	}
	return flush()
}

func writeStatus(w io.Writer, backend string, l lookedAt) error {
	r, note := l.Record, ""
	if l.missing != "" {
		note = ", but " + noLocksYet(l.missing)
	}
	if _, err := fmt.Fprintf(w, "%s: %s%s\n", format.Text(r.Name), lockStateText(r), note); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, fact := range append([]lockFact{{"backend", format.Text(backend)}}, lockFacts(r)...) {
		fmt.Fprintf(table, "  %s\t%s\n", fact.name, fact.value)
	}
	return table.Flush()
}

func lockStateText(r holdfast.Record) string {
	if r.Broken {
		return r.State.String() + ", broken: renewals are refused"
	}
	return r.State.String()
}

// lockFact is a line about a lock.
type lockFact struct{ name, value string }

// lockFacts are the lines about a lock that "holdfast status" and "holdfast top" show.
func lockFacts(r holdfast.Record) (facts []lockFact) {
	fact := func(name, value string) { facts = append(facts, lockFact{name, value}) }
	if r.State == driver.StateFree {
		if r.Owner != "" {
			fact("last owner", format.Text(r.Owner))
		}
		if r.Token != 0 {
			fact("last token", tokenText(r))
		}
	} else if len(r.Holders) > 0 {
		facts = append(facts, holderFacts(r)...)
	} else {
		fact("owner", ownerText(r))
		fact("token", tokenText(r))
		fact("time left", leftText(r)+ofTTL(r))
		fact("acquired", timeText(r.AcquiredAt))
		fact("renewed", timeText(r.RenewedAt))
		if r.Endless {
			fact("lease", endlessText(r))
			fact("to free it", fmt.Sprintf("make sure that its holder has stopped, then: holdfast break %s %s",
				format.ShellWord(r.Name), targetFlag(r)))
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

// ownerText is the owner, or one of the holders of a shared lock and how many others there are.
func ownerText(r holdfast.Record) string {
	owner, others := r.Owner, ""
	if n := len(r.Holders); n > 0 {
		owner = r.Holders[n-1].Owner
		if n > 1 {
			others = fmt.Sprintf(" and %d more", n-1)
		}
	}
	if owner == "" {
		return "unknown" + others
	}
	return format.Text(owner) + others
}

func tokenText(r holdfast.Record) string {
	if r.Token == 0 {
		return "unknown"
	}
	return strconv.FormatUint(r.Token, 10)
}

func leftText(r holdfast.Record) string {
	switch {
	case r.Endless:
		return "never ends"
	case !r.RemainingKnown:
		return "unknown"
	}
	return format.Duration(r.Remaining)
}

// endlessText says of a lease that never ends who may have taken it, and how the lock becomes free.
func endlessText(r holdfast.Record) string {
	text := "This lease never ends"
	if r.Owner == "" {
		text += ": another program or a person took it, not Holdfast"
	}
	return text + ". The lock stays held until it is released or broken."
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
