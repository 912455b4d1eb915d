package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

type statusCmd struct {
	Name string `arg:"" help:"Name of the lock."`
	JSON bool   `help:"Write one JSON object. ttlMs and remainingMs are in milliseconds, data is base64, and an unknown value is null."`
}

// Help is shown above the flags.
func (*statusCmd) Help() string {
	return `The exit code is 0 whether the lock is held or free. Times are by the backend's clock.

Example: the milliseconds until the holder's lease expires, unless it is renewed

    holdfast status nightly-report --json | jq .remainingMs`
}

// Validate is called by the parser.
func (s *statusCmd) Validate() error { return checkName(s.Name) }

// Run shows the record of one lock.
func (s *statusCmd) Run(a *app) error {
	return a.withClient(func(ctx context.Context, client *holdfast.Client) error {
		record, err := client.Inspect(ctx, s.Name)
		if err != nil {
			return err
		}
		record.Name = s.Name
		if s.JSON {
			return writeJSON(a.stdout, lockToJSON(record))
		}
		return writeStatus(a.stdout, displayBackend(a.backend), record)
	})
}

func writeStatus(w io.Writer, backend string, r holdfast.Record) error {
	state := r.State.String()
	if r.Broken {
		state += ", broken: renewals are refused"
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", quoteUnsafe(r.Name), state); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "  %s\t%s\n", name, value) }
	row("backend", quoteUnsafe(backend))
	if r.State == driver.StateFree {
		if r.Owner != "" {
			row("last owner", quoteUnsafe(r.Owner))
		}
		if r.Token != 0 {
			row("last token", tokenText(r))
		}
	} else {
		row("owner", ownerText(r))
		row("token", tokenText(r))
		row("time left", leftText(r)+ofTTL(r))
		row("acquired", timeText(r.AcquiredAt))
		row("renewed", timeText(r.RenewedAt))
	}
	if r.Data != nil {
		row("data", fmt.Sprintf("%d bytes", len(r.Data)))
	}
	return table.Flush()
}

func ownerText(r holdfast.Record) string {
	if r.Owner == "" {
		return "unknown"
	}
	return quoteUnsafe(r.Owner)
}

func tokenText(r holdfast.Record) string {
	if r.Token == 0 {
		return "unknown"
	}
	return strconv.FormatUint(r.Token, 10)
}

func leftText(r holdfast.Record) string {
	if !r.RemainingKnown {
		return "unknown"
	}
	return roundedDuration(r.Remaining)
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
