package main

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
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
func (s *statusCmd) Validate() error { return backends.CheckName(s.Name) }

// Run shows the record of one lock.
func (s *statusCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		record, err := client.Inspect(ctx, s.Name)
		if err != nil {
			return err
		}
		seen := a.lookFurther(ctx, client, record)
		if s.JSON {
			return writeJSON(a.stdout, seen.JSON())
		}
		return seen.WriteStatus(a.stdout, backends.Display(a.backend))
	})
}
