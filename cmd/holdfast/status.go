package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
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
	if _, err := fmt.Fprintf(w, "%s: %s%s\n", format.Text(r.Name), describe.State(r), note); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, fact := range append([]describe.Fact{{Name: "backend", Value: format.Text(backend)}}, describe.Facts(r)...) {
		fmt.Fprintf(table, "  %s\t%s\n", fact.Name, fact.Value)
	}
	return table.Flush()
}
