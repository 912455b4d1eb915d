package describe

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// Lock is the record of a lock, with what else was seen.
type Lock struct {
	holdfast.Record
	Missing string            // the part of the backend that does not exist, so that there are no locks yet; or ""
	Slots   []holdfast.Record // of a lock with slots, the first one's record included; else nil
}

// StatusJSON is LockJSON with what status adds.
type StatusJSON struct {
	LockJSON
	Slots   []LockJSON `json:"slots"`
	Missing *string    `json:"missing"`
}

// JSON is the JSON form of a lock.
func (l Lock) JSON() StatusJSON {
	out := StatusJSON{LockJSON: JSON(l.Record), Missing: format.NilIfZero(l.Missing)}
	for _, slot := range l.Slots {
		out.Slots = append(out.Slots, JSON(slot))
	}
	return out
}

// WriteStatus shows a lock.
func (l Lock) WriteStatus(w io.Writer, backend string) error {
	if l.Slots != nil {
		return l.writeSlots(w, backend)
	}
	return l.writeRecord(w, backend)
}

func (l Lock) writeSlots(w io.Writer, backend string) error {
	if _, err := fmt.Fprintf(w, "%s: %s\n  backend  %s\n\n", format.Text(l.Name), heldSlots(l.Slots), format.Text(backend)); err != nil {
		return err
	}
	write, flush := Table(w)
	for _, slot := range l.Slots {
		if err := write(slot); err != nil {
			return err
		}
	}
	return flush()
}

func (l Lock) writeRecord(w io.Writer, backend string) error {
	r, note := l.Record, ""
	if l.Missing != "" {
		note = ", but " + NoLocksYet(l.Missing)
	}
	if _, err := fmt.Fprintf(w, "%s: %s%s\n", format.Text(r.Name), State(r), note); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, fact := range append([]Fact{{Name: "backend", Value: format.Text(backend)}}, Facts(r)...) {
		fmt.Fprintf(table, "  %s\t%s\n", fact.Name, fact.Value)
	}
	return table.Flush()
}

// NoLocksYet says that there are no locks on the backend yet.
func NoLocksYet(missing string) string {
	return "there are no locks here yet: " + missing + " does not exist"
}

// heldSlots says how many slots are held.
func heldSlots(slots []holdfast.Record) string {
	held := 0
	for _, slot := range slots {
		if slot.State != driver.StateFree {
			held++
		}
	}
	if held == 1 {
		return "1 slot is held"
	}
	return strconv.Itoa(held) + " slots are held"
}

// Table writes locks as the rows of a table. The heading is written with the first row.
func Table(w io.Writer) (write func(holdfast.Record) error, flush func() error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	empty := true
	return func(r holdfast.Record) error {
		if empty {
			fmt.Fprintln(table, "NAME\tSTATE\tLEFT\tTOKEN\tOWNER")
			empty = false
		}
		left := Left(r)
		if r.State == driver.StateFree {
			left = "-"
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", format.Text(r.Name), lockview.State(&r), left, Token(r), Owner(r))
		return err
	}, table.Flush
}
