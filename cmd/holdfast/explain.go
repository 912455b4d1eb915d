package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
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
func (e *explainCmd) Validate() error { return backends.CheckName(e.Name) }

// Run explains one lock.
func (e *explainCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		asked := time.Now()
		record, err := client.Inspect(ctx, e.Name)
		answered := time.Now()
		if err != nil {
			return err
		}
		seen := a.lookFurther(ctx, client, record)
		x := &describe.Explanation{Lock: seen, Can: client.Capabilities(), Info: client.Info(), Backend: backends.Display(a.backend),
			Flag: a.backendFlag, FlagSecret: backends.HoldsPassword(a.backendFlag)}
		x.ReadClock(asked, answered)
		if e.JSON {
			return writeJSON(a.stdout, x.JSON())
		}
		return x.Write(a.stdout)
	})
}
