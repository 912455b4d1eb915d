package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
)

// takeFlags are the flags of commands that take a lock themselves, without running a command.
type takeFlags struct {
	Try              bool           `xor:"wait" help:"Do not wait: exit with 75 at once if another holds the lock."`
	Wait             *time.Duration `xor:"wait" placeholder:"DURATION" help:"Wait no longer than this, such as 90s or 5m, then exit with 75, or with 69 if the backend has not answered. 0s means --try. Default: wait indefinitely, but 10s for the backend's first answer."`
	ConflictExitCode int            `short:"E" default:"75" placeholder:"CODE" help:"Exit with this code instead of 75 if another holds the lock."`
	TTL              time.Duration  `positive:"" placeholder:"DURATION" help:"How long the lock stays held after this process has crashed or can no longer reach the backend. Default: 30s."`
	Owner            string         `placeholder:"TEXT" help:"How others see this holder. Default: host/pid."`
}

// taker returns what "holdfast run" uses to take a lock and to release it.
func (f *takeFlags) taker(a *app, name string, stop func()) (*runner, error) {
	flags := &runCmd{Name: name, Try: f.Try || f.Wait != nil && *f.Wait == 0, Wait: f.Wait, ConflictExitCode: f.ConflictExitCode,
		TTL: f.TTL, Owner: f.Owner, Slots: 1}
	if f.ConflictExitCode < 0 || f.ConflictExitCode > 255 {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("--conflict-exit-code %d is invalid: must be from 0 to 255", f.ConflictExitCode))
	}
	r := &runner{runCmd: flags, log: a.log, signals: signals.Catch(), waitStart: time.Now(), answered: stop,
		events: &eventLogger{log: a.log, backend: backends.Display(a.backend), answered: stop, try: flags.Try}}
	return r, r.open(a)
}

// take takes a lock, calls fn, and releases the lock.
func (f *takeFlags) take(a *app, name string, fn func(*runner, *holdfast.Hold) error) error {
	stop := a.reportSlowAnswer()
	defer stop()
	r, err := f.taker(a, name, stop)
	if err != nil {
		return err
	}
	defer r.close()
	hold, err := r.acquire()
	if err != nil {
		return err
	}
	defer r.release(hold.lease)
	return fn(r, hold.first)
}

type lockCmd struct {
	Name string `arg:"" help:"Name of the lock."`
	takeFlags
	JSON bool `help:"Write one JSON object with name, owner and token."`
}

// Help is shown above the flags.
func (*lockCmd) Help() string {
	return `Takes the lock, writes its token and its name on one line, and holds it until standard input ends or a signal comes. Then it
releases the lock; after SIGTERM the exit code is 0. A loss ends it at once with 76; what the lock protects must stop then.
"holdfast run" does that by itself, so prefer it where one command does the work.

Example: hold a lock while a shell script runs several steps

    coproc LOCK { holdfast lock nightly --try; }
    read -r token name <&"${LOCK[0]}" || exit 75   # another holds it
    step-one && step-two --token "$token"
    exec {LOCK[1]}>&-; wait "$LOCK_PID"             # release`
}

// Validate is called by the parser.
func (l *lockCmd) Validate() error { return backends.CheckName(l.Name) }

// lockedJSON is what "holdfast lock --json" writes.
type lockedJSON struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
}

// Run holds the lock until standard input ends.
func (l *lockCmd) Run(a *app) error {
	if tty.InBackground(os.Stdin) { // the read of the input would stop this process, and nothing would renew the lock
		return exitcode.With(exitcode.Usage, errors.New("standard input is the terminal, and this job is in the background: "+
			"give it another input"))
	}
	return l.take(a, l.Name, func(r *runner, hold *holdfast.Hold) error {
		var err error
		if l.JSON {
			err = writeJSON(a.stdout, lockedJSON{hold.Name(), hold.Lease().Owner, hold.Token()})
		} else {
			_, err = fmt.Fprintln(a.stdout, hold.Token(), format.Text(hold.Name())) // the name may be quoted, with spaces
		}
		if err != nil {
			return err
		}
		return r.holdUntil(hold, inputEnd(os.Stdin))
	})
}

// inputEnd is closed when the input ends. What it reads is thrown away. Its goroutine ends with
// the process: a read of a terminal cannot be interrupted.
func inputEnd(in io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, in) // an input that cannot be read has ended
	}()
	return done
}

// holdUntil waits for done, for a signal, or for the loss of the lock.
func (r *runner) holdUntil(hold *holdfast.Hold, done <-chan struct{}) error {
	lost := func() bool { // also if something else is ready, too
		err := hold.Err()
		if errors.Is(err, holdfast.ErrLost) {
			r.log.Errorf("lost %q: %v", hold.Name(), err)
			return true
		}
		return false
	}
	for {
		select {
		case <-done:
			if lost() {
				return errLost
			}
			return nil
		case sig := <-r.signals.C:
			switch {
			case !signals.AsksToEnd(sig):
			case lost():
				return errLost
			default:
				return ended(signals.Code(sig))
			}
		case <-hold.Context().Done():
			lost()
			return errLost
		}
	}
}
