package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/driver"
)

type watchCmd struct {
	Names  []string      `arg:"" optional:"" name:"name" help:"Names of the locks. Without a name: all locks, or those of --prefix."`
	Prefix string        `placeholder:"TEXT" help:"Watch the locks whose names begin with this."`
	Every  time.Duration `default:"2s" placeholder:"DURATION" help:"How often to list the locks if no name is given. Default: 2s. Each listing is a request to the backend, or several."`
	JSON   bool          `help:"Write one JSON object for each change, one per line: the fields of \"holdfast status --json\", and time and change (held, free, broken, removed, unknown)."`
}

// Help is shown above the flags.
func (*watchCmd) Help() string {
	return `Writes a line for each lock as it is now, and another one whenever its holder changes, or it is released, broken or removed.
Renewals are not shown. It runs until a signal ends it. After the first answer, a failure of the
backend is reported and retried.

A holder that comes and goes between two readings is not seen. With names, a reading follows each release, where the backend can report one.

Example: a message whenever the leader changes

    holdfast watch billing --json | jq --unbuffered -r 'select(.change == "held").owner' |
        while read -r owner; do notify-send "billing: $owner leads"; done`
}

// minEvery keeps a mistyped interval from flooding the backend.
const minEvery = 100 * time.Millisecond

// Validate is called by the parser.
func (c *watchCmd) Validate() error {
	if len(c.Names) > 0 && c.Prefix != "" {
		return errors.New("give either names or --prefix")
	}
	for _, name := range c.Names {
		if err := backends.CheckName(name); err != nil {
			return err
		}
	}
	return checkEvery(c.Every)
}

func checkEvery(d time.Duration) error {
	if d < minEvery {
		return fmt.Errorf("--every: %s is invalid: must be at least %s", driver.FormatDuration(d), driver.FormatDuration(minEvery))
	}
	return nil
}

// Run watches until a signal comes or the output fails.
func (c *watchCmd) Run(a *app) error {
	return a.follow(a.openToLook, func(ctx context.Context, client *holdfast.Client) error { return c.follow(ctx, a, client) })
}

// follow watches until ctx ends.
func (c *watchCmd) follow(ctx context.Context, a *app, client *holdfast.Client) error {
	if err := a.askFirst(ctx, client); err != nil {
		return err
	}
	out := &changeWriter{w: a.stdout, asJSON: c.JSON}
	if len(c.Names) > 0 {
		return a.watchNames(ctx, client, out, c.Names)
	}
	return a.watchPrefix(ctx, client, out, c.Prefix, c.Every)
}

// follow opens the backend and calls fn, which runs until a signal ends its context. The signal
// needs no message: it is how such a command is meant to end. After SIGTERM, by which service managers
// stop a service, the exit code is 0; after another signal it is the signal's.
func (a *app) follow(open opener, fn func(context.Context, *holdfast.Client) error, opts ...holdfast.ClientOption) error {
	caught := signals.Catch()
	return a.followUntil(&caught, open, fn, opts...)
}

// followUntil is follow, with the signals that end it.
func (a *app) followUntil(caught *signals.Caught, open opener, fn func(context.Context, *holdfast.Client) error,
	opts ...holdfast.ClientOption) error {
	opened := make(chan *holdfast.Client, 1)
	err := caught.DuringWithin(callTimeout, func(ctx context.Context) error {
		client, err := a.openInTime(ctx, open, opts)
		if err != nil {
			return err
		}
		opened <- client
		return fn(ctx, client)
	})
	select {
	case client := <-opened:
		ctx, cancel := context.WithTimeout(context.Background(), idleShutdownTimeout)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			a.log.Verbosef("%v", err)
		}
	default: // there is none, or opening it hangs
	}
	var exit *exitcode.Error
	if errors.As(err, &exit) && exit.Code > exitcode.Signal {
		return ended(exit.Code)
	}
	return err
}

// ended is how a signal with this exit code ends a command that has no end of its own.
func ended(code int) error {
	if code == signals.Code(syscall.SIGTERM) {
		return nil
	}
	return exitcode.With(code, nil)
}

// watchNames observes each lock until ctx ends or a line cannot be written.
func (a *app) watchNames(ctx context.Context, client *holdfast.Client, out *changeWriter, names []string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	for _, name := range names {
		watching.Go(func() {
			failures := &eventLogger{log: a.log}
			for record, err := range client.Observe(ctx, name) {
				if err != nil {
					failures.logFailure(holdfast.Event{Op: "inspect", Name: name, Err: err}, time.Now())
					continue
				}
				record.Name = name
				if err := out.write(record); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	watching.Wait()
	return writeFailure(ctx)
}

// writeFailure is the error that ended a context, unless a signal did.
func writeFailure(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watchPrefix lists the locks again and again, and writes what has changed.
func (a *app) watchPrefix(ctx context.Context, client *holdfast.Client, out *changeWriter, prefix string, every time.Duration) error {
	failures := &eventLogger{log: a.log}
	known := map[string]holdfast.Record{}
	for {
		current, err := a.list(ctx, client, prefix, known)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return errors.New("this backend cannot list its locks: give their names")
		case err != nil && ctx.Err() == nil:
			failures.logFailure(holdfast.Event{Op: "list", Name: prefix, Err: err}, time.Now())
		case err == nil:
			if err := writeChanges(out, known, current); err != nil {
				return err
			}
			known = current
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}

// list reads all records. One that cannot be read stays as it was known. An error means that the
// list is incomplete.
func (a *app) list(ctx context.Context, client *holdfast.Client, prefix string,
	known map[string]holdfast.Record) (map[string]holdfast.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	current := make(map[string]holdfast.Record, len(known))
	for record, err := range client.List(ctx, prefix) {
		switch {
		case err == nil:
			current[record.Name] = record
		case record.Name == "":
			return nil, err
		default: // only this record cannot be read
			a.log.Verbosef("%v", err)
			if before, ok := known[record.Name]; ok {
				current[record.Name] = before
			}
		}
	}
	return current, nil
}

// writeChanges writes how the locks differ from before, in the order of their names.
func writeChanges(out *changeWriter, before, now map[string]holdfast.Record) error {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range now {
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		old, wasThere := before[name]
		record, isThere := now[name]
		var err error
		switch {
		case !isThere:
			err = out.removed(name)
		case !wasThere || old.State != record.State || old.Token != record.Token || old.Owner != record.Owner || old.Broken != record.Broken ||
			len(old.Holders) != len(record.Holders):
			err = out.write(record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
