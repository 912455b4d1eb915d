package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

type breakCmd struct {
	Name    string  `arg:"" help:"Name of the lock."`
	Token   *uint64 `placeholder:"N" help:"Break the lock only if its holder has this token. Otherwise exit with 75."`
	Unknown bool    `help:"Break the lock only if the token of its holder is unknown: another program took the lease, or the holder acquired the lock a moment ago. Otherwise exit with 75."`
	Now     bool    `help:"Free the lock at once. The holder does not learn of it before its next renewal, so until then it and the next holder may both be at work. Use this only if the holder is certainly dead."`
	Yes     bool    `short:"y" help:"Do not ask. Needed where standard input is not a terminal."`
	JSON    bool    `help:"Write one JSON object: the lock as it was broken, with the fields of \"holdfast status --json\"."`
}

// Help is shown above the flags.
func (*breakCmd) Help() string {
	return `Takes a lock from its holder. The backend refuses the holder's renewals from now on, so the holder stops its work, and the lock
becomes free when the lease ends, at the latest. Two holders never overlap, unless --now is given or the lease never ends. (Holdfast
takes no lease without an end; on Azure another program or a person can. Its break frees the lock at once.)

At a terminal it shows the holder, says what will happen, and asks. It breaks only the holder that it has shown: if another has the lock
by then, nothing happens and the exit code is 75. So it is if the holder's token is unknown, unless --unknown is given. Any answer but yes
leaves the lock alone; the exit code is 1. A free lock is left alone; the exit code is 0.

Example: in a script, break only the holder that was seen

    token=$(holdfast status billing --json | jq .token)
    holdfast break billing --token "$token" --yes`
}

// Validate is called by the parser.
func (b *breakCmd) Validate() error {
	if b.Token != nil && *b.Token == 0 {
		return errors.New("--token 0 is invalid: must be the token of the holder to break")
	}
	if b.Token != nil && b.Unknown {
		return errors.New("give either --token or --unknown")
	}
	return backends.CheckName(b.Name)
}

// errNotAsked is returned where nobody can be asked.
var errNotAsked = exitcode.With(exitcode.Usage,
	errors.New("standard input is not a terminal: add --yes to break the lock without being asked"))

// Run breaks the lock after the user has agreed.
func (b *breakCmd) Run(a *app) error {
	return a.withClient(a.openToTake, func(ctx context.Context, client *holdfast.Client) error { return b.breakLock(ctx, a, client) })
}

func (b *breakCmd) breakLock(ctx context.Context, a *app, client *holdfast.Client) error {
	breaker := client.Locker().Capabilities().Breaker
	if breaker == nil {
		return errors.New("this backend cannot break locks")
	}
	record, err := client.Inspect(ctx, b.Name)
	if err != nil {
		return err
	}
	others := len(record.Holders) - 1
	if record, err = b.oneHolder(record); err != nil {
		return err
	}
	switch {
	case record.State == driver.StateFree:
		if err := repeatBreak(ctx, breaker, record); err != nil {
			return err
		}
		a.log.Infof("%q is free on %s: there is nothing to break", b.Name, backends.Display(a.backend))
		return nil
	case b.Token != nil && record.Token != *b.Token, b.Unknown && record.Token != 0:
		return notBrokenOn(a, record)
	case record.Token == 0 && !b.Unknown:
		return exitcode.With(exitcode.Held, fmt.Errorf("%q was not broken on %s: the token of its holder is unknown: the holder acquired the "+
			"lock a moment ago, or another program took the lease; try again, and if the token stays unknown, add --unknown",
			b.Name, backends.Display(a.backend)))
	case record.Broken && !b.Now:
		if err := repeatBreak(ctx, breaker, record); err != nil {
			return err
		}
		a.log.Infof("%q is broken already: it becomes free %s", b.Name, describe.FreeBy(record))
		return nil
	}
	if !b.Yes {
		if !tty.IsTerminal(os.Stdin) {
			return errNotAsked
		}
		a.log.Flush()
		agreed, err := b.ask(a, os.Stdin, record)
		if err != nil {
			return err
		}
		if !agreed {
			return exitcode.With(exitcode.Declined, fmt.Errorf("%q was not broken", b.Name))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	breakLock := breaker.Break
	if b.Now {
		breakLock = breaker.BreakNow
	}
	err = breakLock(ctx, b.Name, describe.BreakTarget(record))
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		return notBrokenOn(a, held.Record)
	}
	if err != nil {
		return err
	}
	record = b.broken(ctx, client, record)
	if b.JSON {
		return writeJSON(a.stdout, describe.JSON(record))
	}
	if others > 0 {
		a.log.Infof("broke one holder of %q: %s, token %s; %d more share the lock", b.Name, describe.Owner(record), describe.Token(record),
			others)
		return nil
	}
	a.log.Infof("%s", describe.Broke(record, b.Now))
	return nil
}

// broken reads the record of a holder again that was broken just now: while the user was asked, it may have renewed its lease. Without an
// answer, or if the lock is free by now, the time left is unknown.
func (b *breakCmd) broken(ctx context.Context, client *holdfast.Client, record holdfast.Record) holdfast.Record {
	again, err := client.Inspect(ctx, b.Name)
	if err == nil {
		again, err = b.oneHolder(again)
	}
	if err == nil && again.Broken && again.Token == record.Token {
		return again
	}
	record.Broken, record.Remaining, record.RemainingKnown = true, 0, false
	return record
}

// repeatBreak asks the backend for a break that is in the record already. The outcome of an earlier one may be unknown, such as
// when its wait for a standby was cancelled: then it becomes certain. It affects no later holder.
func repeatBreak(ctx context.Context, breaker driver.Breaker, record holdfast.Record) error {
	if record.Token == 0 { // nobody had it, or nobody knows whom to name
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err := breaker.Break(ctx, record.Name, driver.BreakToken(record.Token))
	if errors.Is(err, holdfast.ErrHeld) { // another has it meanwhile
		return nil
	}
	return err
}

// oneHolder is the record as that of the holder to break alone. Of several, --token must name one.
func (b *breakCmd) oneHolder(r holdfast.Record) (holdfast.Record, error) {
	if len(r.Holders) > 1 && b.Token == nil {
		return r, exitcode.With(exitcode.Usage, fmt.Errorf("%q is shared by %d holders: name the one to break by --token; "+
			"holdfast status lists them", b.Name, len(r.Holders)))
	}
	for _, h := range r.Holders {
		if b.Token == nil || *b.Token == h.Token {
			return lockview.OfHolder(r, h), nil
		}
	}
	return r, nil
}

// notBrokenOn names the backend, too: on another one, another holder may have the lock.
func notBrokenOn(a *app, r holdfast.Record) error {
	return exitcode.With(exitcode.Held, fmt.Errorf("%w on %s", describe.NotBroken(r), backends.Display(a.backend)))
}

// ask shows the holder and what will happen, and returns whether the user agrees.
func (b *breakCmd) ask(a *app, in io.Reader, r holdfast.Record) (bool, error) {
	if _, err := fmt.Fprintf(a.stderr, "On %s:\n\n%s is held by %s.\n%s\nBreak it? [y/N] ",
		format.Text(backends.Display(a.backend)), format.Text(b.Name), describe.Holder(r), describe.BreakEffect(r, b.Now)); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
