package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
)

type electCmd struct {
	Name    string        `arg:"" help:"Name of the lock."`
	Observe bool          `short:"l" help:"Only show who leads; do not take part."`
	TTL     time.Duration `positive:"" placeholder:"DURATION" help:"How long a leader that has crashed still counts as the leader. Default: 30s."`
	Owner   string        `placeholder:"TEXT" help:"How others see this process. Default: host/pid."`
	JSON    bool          `help:"Write one JSON object for each change, one per line, as \"holdfast watch --json\" does."`
}

// Help is shown above the flags.
func (*electCmd) Help() string {
	return `Takes part in an election, and writes a line whenever the leader changes. After a loss it campaigns again. A signal ends it; it
then gives leadership up, and the next one leads at once. After SIGTERM the exit code is 0.

The lines on standard output come from the backend. Whether this process leads is reported on standard error.

Example: two terminals, one election

    holdfast elect billing --owner one
    holdfast elect billing --owner two`
}

// Validate is called by the parser.
func (e *electCmd) Validate() error { return backends.CheckName(e.Name) }

// Run campaigns and observes until a signal comes.
func (e *electCmd) Run(a *app) error {
	open := a.openToTake
	if e.Observe {
		open = a.openToLook
	}
	return a.follow(open, func(ctx context.Context, client *holdfast.Client) error { return e.takePart(ctx, a, client) })
}

// takePart campaigns and observes until ctx ends.
func (e *electCmd) takePart(ctx context.Context, a *app, client *holdfast.Client) error {
	if err := a.askFirst(ctx, client); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var campaign sync.WaitGroup
	if !e.Observe {
		runner, err := holdfast.NewLeaderAwareRunner(client, e.Name, e.options(a)...)
		if err != nil {
			return err
		}
		campaign.Go(func() { // its failures are reported to the observers, and it ends with ctx
			_ = runner.Run(ctx, func(ctx context.Context) error { return e.lead(ctx, a) })
		})
	}
	err := a.watchNames(ctx, client, &changeWriter{w: a.stdout, asJSON: e.JSON}, []string{e.Name})
	cancel()
	campaign.Wait() // the lock is released then
	return err
}

// lead leads until leadership ends.
func (e *electCmd) lead(ctx context.Context, a *app) error {
	token, _ := holdfast.TokenFromContext(ctx)
	a.log.Infof("this process leads %q, token %d", e.Name, token)
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, holdfast.ErrLost) {
		a.log.Errorf("this process no longer leads %q: %v", e.Name, err)
	} else {
		a.log.Infof("this process gives %q up", e.Name)
	}
	return nil
}

func (e *electCmd) options(a *app) []holdfast.RunnerOption {
	failures := &eventLogger{log: a.log}
	opts := []holdfast.RunnerOption{holdfast.WithObserver(func(event holdfast.Event) {
		if event.Type == holdfast.EventError && event.Op != "clean up" {
			failures.logFailure(event, time.Now())
		}
	})}
	if e.TTL > 0 {
		opts = append(opts, holdfast.WithTTL(e.TTL))
	}
	if e.Owner != "" {
		opts = append(opts, holdfast.WithOwner(e.Owner))
	}
	return opts
}
