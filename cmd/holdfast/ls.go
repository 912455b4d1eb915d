package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

type lsCmd struct {
	Prefix string `arg:"" optional:"" help:"Only locks whose names begin with this."`
	JSON   bool   `help:"Write one JSON object for each lock, each on a line of its own, as status does."`
}

// Help is shown below the flags.
func (*lsCmd) Help() string {
	return `Shows each lock that has a record, held or free, in the order of their names. A backend may forget free locks after a while.

Example: the names of all locks that are held

    holdfast ls --json | jq -r 'select(.state == "held").name'`
}

// Run lists the records that the backend has.
func (l *lsCmd) Run(a *app) error {
	return a.ask(func(ctx context.Context, client *holdfast.Client) error {
		lister := client.Locker().Capabilities().Lister
		if lister == nil {
			return errors.New("this backend cannot list its locks")
		}
		write, flush := lockTable(a.stdout)
		if l.JSON {
			write, flush = func(r holdfast.Record) error { return writeJSON(a.stdout, toJSON(r)) }, func() error { return nil }
		}
		var unread []error // what cannot be read does not hide the rest
		if a.person {
			a.say.info("locks on %s:", shownBackend(a.backend))
		}
		for record, err := range lister.List(ctx, l.Prefix) {
			if err == nil {
				err = write(record)
			} else if record.Name != "" {
				unread = append(unread, err)
				continue
			}
			if err != nil {
				return errors.Join(append(unread, flush(), err)...)
			}
		}
		return errors.Join(append(unread, flush())...)
	})
}

// lockTable writes locks as the lines of a table; its heading comes with the first.
func lockTable(w io.Writer) (write func(holdfast.Record) error, flush func() error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	empty := true
	return func(r holdfast.Record) error {
		if empty {
			fmt.Fprintln(table, "NAME\tSTATE\tLEFT\tTOKEN\tOWNER")
			empty = false
		}
		left := leftText(r)
		if r.State == driver.StateFree {
			left = "-"
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", printable(r.Name), r.State, left, tokenText(r), ownerText(r))
		return err
	}, table.Flush
}
