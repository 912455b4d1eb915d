package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
)

type lsCmd struct {
	Prefix string `arg:"" optional:"" help:"List only locks whose names begin with this."`
	JSON   bool   `help:"Write one JSON object for each lock, one per line, with the same fields as \"holdfast status --json\"."`
}

// Help is shown above the flags.
func (*lsCmd) Help() string {
	return `Lists all locks that have a record, held or free, sorted by name. A backend may remove the record of a lock that has been free
for a while.

Example: the names of all held locks

    holdfast ls --json | jq -r 'select(.state == "held").name'`
}

var errCannotList = errors.New("this backend cannot list its locks")

// Run lists the backend's records.
func (l *lsCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		lister := client.Locker().Capabilities().Lister
		if lister == nil {
			return errCannotList
		}
		found := false
		write, flush := describe.Table(a.stdout)
		if l.JSON {
			write, flush = func(r holdfast.Record) error { return writeJSON(a.stdout, describe.JSON(r)) }, func() error { return nil }
		}
		var unreadable []error // a record that cannot be read does not hide the others
		if a.interactive {
			a.log.Infof("locks on %s:", backends.Display(a.backend))
		}
		for record, err := range lister.List(ctx, l.Prefix) {
			found = true
			if err == nil {
				err = write(record)
			} else if record.Name != "" {
				unreadable = append(unreadable, err)
				continue
			}
			if err != nil {
				return errors.Join(append(unreadable, flush(), err)...)
			}
		}
		if !found {
			a.reportMissingStore(a.missingStore(ctx, client))
		}
		return errors.Join(append(unreadable, flush())...)
	})
}
