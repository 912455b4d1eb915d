package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/retry"
	"github.com/holdfast-go/holdfast/lockertest"
)

type certifyCmd struct {
	Timeout time.Duration `default:"15m" positive:"" placeholder:"DURATION" help:"How long it may take at most. Default: ${default}."`
	For     time.Duration `placeholder:"DURATION" help:"Then let four clients of this process contend for three locks for so long, some holds over several renewals, and check that no two hold one at the same time, tokens rise and each lock is granted. It does not count for --timeout."`
	Hosts   bool          `help:"Also show where the backend is: hosts, folders and other names, in the line of the backend, in failures and in the driver's findings."`
	JSON    bool          `help:"Write one JSON object."`
}

// Validate is called by the parser.
func (c *certifyCmd) Validate() error {
	if c.For < 0 {
		return fmt.Errorf("--for %s: must be 0 or more", driver.FormatDuration(c.For))
	}
	return nil
}

// Help is shown above the flags.
func (*certifyCmd) Help() string {
	return `Checks on your own backend that locks keep their promises there: every clause of the conformance suite that needs no more
than calls, the driver's guard against late writes, takeovers after a crash, and how long calls take. It takes two to five minutes, and
ends with a report of one page. Passwords, and without --hosts names of hosts, are not in it, so that it can be shown to others. If the
checks cannot be finished, it shows only the broken clauses; with --json, "complete" is then false.

It works in a collection, table, folder or prefix of its own, "holdfast_certify_…", which it needs the right to make, and removes it, also
when it is interrupted. On Azure, S3 and DynamoDB every request is billed, and a container or table that did not exist stays.

Exit codes:
  0     every clause was kept, and the driver found nothing doubtful
  2     the command line, the URL or a credential beside it is wrong
  3     every clause was kept, but the driver found something doubtful:
        see "holdfast doctor"
  4     a clause was broken, the driver found something wrong, the backend
        cannot be reached, or the checks took too long (--timeout)
  74    the output cannot be written
  128+n signal n interrupted it

Example: a report to keep

    holdfast certify --json > certified.json`
}

// benchTimeout limits the measurement of calls. That takes a minute, or forever if a lock is never granted. Tests shorten it.
var benchTimeout = 5 * time.Minute

// partAttempts is how often a part is tried if one of its calls is not answered, as lockertest does with a clause: a server may be out of
// reach for a moment.
const partAttempts = 3

// partPause is the pause before another attempt. Tests shorten it.
var partPause = 5 * time.Second

// removeTimeout bounds the removal of what certify has made.
const removeTimeout = 2 * time.Minute

// Run certifies the backend and writes the report.
func (c *certifyCmd) Run(a *app) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the report says what a driver would log
	about, _ := driver.Describe(a.backend)
	if about.Apart == nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("the driver of %s does not say how locks are kept apart from others", about.Name))
	}
	ctx, stop := context.WithTimeout(context.Background(), c.Timeout+c.For)
	defer stop()
	ctx, interrupted := withSignals(ctx)
	own, remove := about.Apart(a.backend, "holdfast_certify_"+strings.ToLower(rand.Text()[:10]))
	report := newCertificate(about)
	secrets := backends.SecretValues(a.backend)
	err := backends.WithoutSecrets(report.examine(ctx, a, own, c.For), secrets)
	late := ctx.Err() != nil
	report.Complete = err == nil && !late
	if late {
		a.log.Infof("removing what was made …")
	}
	removal := backends.WithoutSecrets(removeApart(ctx, remove), secrets)
	if removal != nil && report.Declared != (declared{}) { // otherwise err says why
		a.log.Errorf("what certify has made in %s could not be removed: %v", backends.Display(own), removal)
	}
	missing := "there is no report"
	if len(report.Broken) > 0 {
		missing = "the report is not complete"
	}
	signal := interrupted() // also during the removal, which goes on
	switch {
	case report.Complete: // such a signal takes nothing from it
	case signal != 0:
		err = exitcode.With(exitcode.Signal+int(signal), fmt.Errorf("interrupted: %s", missing))
	case late:
		err = exitcode.With(codeWrong, fmt.Errorf("%s: it was not finished within %s", missing, driver.FormatDuration(c.Timeout+c.For)))
	case err != nil && exitcode.Of(err) != exitcode.Usage:
		err = exitcode.With(codeWrong, err)
	}
	report.finish(a.backend, c.Hosts)
	var writing error
	switch {
	case err != nil && len(report.Broken) == 0: // nothing is known of the backend
	case c.JSON:
		writing = writeJSON(a.stdout, report)
	case err != nil:
		writing = report.writeBroken(a.stdout)
	default:
		writing = report.writeText(a.stdout)
	}
	switch {
	case writing != nil:
		return writing
	case err != nil:
		return err
	case signal != 0:
		return exitcode.With(exitcode.Signal+int(signal), nil)
	case report.Verdict == driver.LevelWrong, removal != nil:
		return exitcode.With(codeWrong, nil)
	case report.Verdict == driver.LevelDoubtful:
		return exitcode.With(codeDoubtful, nil)
	}
	return nil
}

// removeApart removes what certify has made, also after an interruption.
func removeApart(ctx context.Context, remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return remove(ctx)
}

// examine runs every part in the store at own, which nothing else uses.
func (c *certificate) examine(ctx context.Context, a *app, own string, soaking time.Duration) error {
	begun, done, shown := time.Now(), 0, 0
	defer func() { c.Took = time.Since(begun).Seconds() }()
	stop := a.reportSlowAnswer()
	var declare sync.Once // clauses open Lockers, too, at the same time
	open := func(ctx context.Context) (driver.Locker, error) {
		l, err := driver.Open(ctx, own)
		stop()
		if err == nil {
			declare.Do(func() { c.declare(l.Info()) })
		}
		return l, err
	}
	secrets := slices.DeleteFunc(backends.SecretValues(a.backend), func(s string) bool { return len(s) < backends.LongSecret })
	err := lockertest.Examine(ctx, open, lockertest.Config{Secrets: secrets, ClockStep: httpstore.MaxDateAge}, func(found lockertest.Outcome) {
		c.add(found)
		if done++; done*10/lockertest.Clauses() > shown {
			shown = done * 10 / lockertest.Clauses()
			a.log.Infof("%d of %d clauses …", done, lockertest.Clauses())
		}
	})
	if err != nil {
		return err
	}
	if err := c.examineGuard(ctx, a.backend, open); err != nil {
		return err
	}
	measuring, cancel := context.WithTimeout(ctx, benchTimeout)
	defer cancel()
	err = untilAnswered(measuring, func(int) (err error) {
		c.Calls, err = bench.Run(measuring, own, bench.Options{Rounds: 50, HandOvers: 10, Crashes: 5,
			Progress: func(what string) { a.log.Infof("%s …", what) }})
		return err
	})
	slow := measuring.Err() != nil && !errors.Is(err, driver.ErrHeld) // it waited for no lock, so calls take long
	switch {
	case err == nil || ctx.Err() != nil:
	case slow:
		err = fmt.Errorf("the measurements were not finished within %s: %w", driver.FormatDuration(benchTimeout), err)
	case !driver.OutcomeKnown(err):
		err = fmt.Errorf("the measurements could not be finished: %w", err)
	default:
		c.Broken = append(c.Broken, brokenClause{Clause: "clients", Says: "A lock that is released goes to another client, and one whose " +
			"holder has crashed is taken over.", Failures: []string{driver.ErrorText(err)}})
		err = nil
	}
	if err == nil && soaking > 0 {
		c.Soak, err = soakFor(ctx, own, soaking, func(holds int, left time.Duration) {
			a.log.Infof("%d holds, %s left …", holds, driver.FormatDuration(left.Round(time.Second)))
		})
		if c.Soak != nil && len(c.Soak.Problems) > 0 {
			c.Broken = append(c.Broken, brokenClause{Clause: "soak", Says: "At most one holder's context is live for a name, every grant has " +
				"a greater token than all before it, and a lock that is free is granted.", Failures: c.Soak.Problems})
		}
	}
	if err == nil {
		err = c.check(ctx, own)
	}
	return err
}

// untilAnswered tries a part until its error says something of the backend. try counts from 0.
func untilAnswered(ctx context.Context, part func(try int) error) error {
	for try := 0; ; try++ {
		err := part(try)
		answered := driver.OutcomeKnown(err) || errors.Is(err, errors.ErrUnsupported)
		if answered || try == partAttempts-1 || !retry.Wait(ctx, partPause) {
			return err
		}
	}
}

// check asks the driver what it finds of the server. It only reads.
func (c *certificate) check(ctx context.Context, own string) error {
	l, err := driver.OpenForCheck(ctx, own)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
	if checker := l.Capabilities().Checker; checker != nil {
		return checker.Check(ctx, func(f driver.Finding) { c.Findings = append(c.Findings, f) })
	}
	return nil
}
