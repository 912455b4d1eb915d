package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/doctor"
)

// Exit codes of "holdfast doctor".
const (
	codeDoubtful = 3
	codeWrong    = 4
)

type doctorCmd struct {
	Timeout time.Duration `default:"2m" positive:"" placeholder:"DURATION" help:"How long to examine the backend at most. Default: ${default}."`
	JSON    bool          `help:"Write one JSON object: backend, verdict, and findings with subject, level, detail, remedy and command."`
}

// Help is shown above the flags.
func (*doctorCmd) Help() string {
	return `Examines whether the backend is set up so that locks in it are safe and quick: the server, the user's rights, clocks, the file
system, damaged records, leases about to be lost. What is not as it should be comes with a remedy. With --quiet only that is shown, with
--json as well.

Each line begins with ok, ? (not checked, because a right is missing or the backend does not show it), DOUBTFUL (locks work, with less
safety or speed than they could), or WRONG (locks do not work, or a promise may be broken).

It only reads, except for a lock "holdfast-doctor" that it takes, renews, releases and removes, also when it is interrupted. It takes none
if something is wrong, or the folder or table does not exist.

Whether the server keeps the promises is for "holdfast certify" to find out: it tries.

Exit codes:
  0     nothing is doubtful or wrong
  2     the command line, the URL or a credential beside it is wrong
  3     something is doubtful
  4     something is wrong, the backend cannot be reached (other commands
        exit with 69 then), or the check did not finish within --timeout
  74    the output cannot be written
  128+n signal n interrupted the check

Example: what is not as it should be

    holdfast doctor --json | jq '.findings[] | select(.level == "wrong")'`
}

// doctorJSON is the JSON form of a report.
type doctorJSON struct {
	Backend  string           `json:"backend"`
	Verdict  driver.Level     `json:"verdict"`
	Findings []driver.Finding `json:"findings"`
}

// Run examines the backend and writes the report.
func (d *doctorCmd) Run(a *app) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the report says what a driver would log
	ctx, stop := context.WithTimeout(context.Background(), d.Timeout)
	defer stop()
	ctx, interrupted := withSignals(ctx)
	slow := a.reportSlowAnswer()
	report, err := doctor.Run(ctx, a.backend)
	slow()
	if sig := interrupted(); sig != 0 {
		return exitcode.With(exitcode.Signal+int(sig), fmt.Errorf("interrupted: the report is not complete"))
	}
	if report == nil {
		return err
	}
	verdict := report.Verdict()
	if err != nil { // out of time
		verdict = driver.LevelWrong
	}
	if d.JSON {
		if a.log.Quiet() {
			report.Findings = slices.DeleteFunc(report.Findings, func(f driver.Finding) bool { return f.Level < driver.LevelDoubtful })
		}
		writeErr := writeJSON(a.stdout, doctorJSON{backends.Display(a.backend), verdict, report.Findings})
		if writeErr != nil {
			return writeErr
		}
	} else if writeErr := a.writeReport(report); writeErr != nil {
		return writeErr
	}
	switch {
	case err != nil:
		return exitcode.With(codeWrong, fmt.Errorf("the report is not complete: the backend did not answer everything within %s",
			driver.FormatDuration(d.Timeout)))
	case verdict == driver.LevelWrong:
		return exitcode.With(codeWrong, nil)
	case verdict == driver.LevelDoubtful:
		return exitcode.With(codeDoubtful, nil)
	}
	return nil
}

func (a *app) writeReport(report *doctor.Report) error {
	if !a.log.Quiet() {
		if _, err := fmt.Fprintf(a.stdout, "%s\n\n", format.Text(backends.Display(a.backend))); err != nil {
			return err
		}
	}
	if err := report.WriteText(a.stdout, a.log.Quiet()); err != nil || a.log.Quiet() {
		return err
	}
	_, err := fmt.Fprint(a.stdout, "\nDoes it keep the promises? \"holdfast certify\" tries.\n")
	return err
}

// withSignals returns a context that the first ending signal ends. received returns that signal,
// or 0, and stops catching signals.
func withSignals(parent context.Context) (ctx context.Context, received func() syscall.Signal) {
	ctx, cancel := context.WithCancel(parent)
	asked, done := make(chan os.Signal, 1), make(chan syscall.Signal, 1)
	signals.Notify(asked, signals.Ending...)
	go func() {
		select {
		case s := <-asked:
			cancel()
			number, _ := s.(syscall.Signal)
			done <- number
		case <-ctx.Done():
			done <- 0
		}
	}()
	return ctx, func() syscall.Signal {
		signal.Stop(asked)
		cancel()
		return <-done
	}
}
