package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/driver"
)

type runCmd struct {
	Name    string   `arg:"" help:"Name of the lock."`
	Command []string `arg:"" passthrough:"partial" help:"The command and its arguments, after \"--\"."`

	Try              bool           `group:"wait" xor:"wait" help:"Do not wait: exit with 75 at once if another holds the lock. Connecting to the backend may take up to 10s. If the server's clock was set back, a dead holder's lock stays held for longer; a run that waits takes it over, one with --try does not."`
	Wait             *time.Duration `group:"wait" xor:"wait" placeholder:"DURATION" help:"Wait no longer than this, such as 90s or 5m, then exit with 75, or with 69 if the backend has not answered. 0s means --try. Default: wait indefinitely, but 10s for the backend's first answer."`
	ConflictExitCode int            `group:"wait" short:"E" default:"75" placeholder:"CODE" help:"Exit with this code instead of 75 if another holds the lock."`

	TTL       time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"How long the lock stays held after its holder has crashed or can no longer reach the backend. Default: 30s."`
	Grace     time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"If the lock cannot be renewed, stop the command this long before another could acquire the lock. Default: a sixth of the TTL."`
	Slots     int           `group:"hold" default:"1" placeholder:"N" help:"Let up to N commands hold the lock at once, each in its own slot (a semaphore). Use the same number everywhere. Default: 1."`
	Shared    bool          `group:"hold" help:"Share the lock with all other commands that are run with --shared. One that is run without it has the lock alone. Not every backend has shared locks."`
	With      []string      `group:"hold" sep:"none" placeholder:"NAME" help:"Hold the lock of this name, too. The command runs once all locks are held, and is stopped when one of them is lost. Can be repeated; the order does not matter."`
	Owner     string        `group:"hold" placeholder:"TEXT" help:"How others see this holder. Default: host/pid."`
	Keep      bool          `group:"hold" help:"After losing the lock, wait for it and run the command again instead of exiting with 76. Also wait indefinitely for the backend's first answer. --try and --wait apply to each wait."`
	MinHold   time.Duration `group:"hold" placeholder:"DURATION" help:"If the command ends sooner than this, successfully or not, keep the lock for the rest of the time, so that another machine, whose clock is a little late, does not run the same job again. A signal that asks holdfast to end cuts this short."`
	KillAfter time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"Kill the command if it has not ended this long after holdfast received SIGTERM. Default: never. (A second SIGTERM kills it in any case.)"`

	Listen    string `group:"listen" placeholder:"ADDRESS" help:"Serve /metrics for Prometheus, /healthz and /readyz at this address, such as 127.0.0.1:9464. Any address but this machine's own needs --token-file. Default: do not listen."`
	TokenFile string `group:"listen" type:"existingfile" placeholder:"FILE" help:"A file with a secret of at least 16 characters. /metrics then needs \"Authorization: Bearer SECRET\", on every address; the probes do not."`

	KeepEnv bool `group:"command" help:"Pass all environment variables to the command, also those with the backend's credentials."`
}

// Help is shown above the flags.
func (*runCmd) Help() string {
	return `Holdfast renews the lock while the command runs and releases it after the command has ended. Processes that the command leaves
behind in its process group must end first: they get SIGTERM and two seconds later SIGKILL. (After a SIGTERM to holdfast they have as long
as the command itself: until --kill-after or a second SIGTERM.) A process that starts a session or process group of its own escapes this.

If the lock is lost, because it could not be renewed in time or an administrator broke it, the process group gets SIGTERM at once. It gets
SIGKILL before another can acquire the lock.

Environment: the command gets HOLDFAST_NAME, HOLDFAST_OWNER, HOLDFAST_SLOT and HOLDFAST_TOKEN. The token is greater for each new holder of
the lock. Storage that remembers the highest token can refuse a write by a holder that was paused and has lost the lock. With --slots each
slot is a lock with tokens of its own: HOLDFAST_NAME is NAME, NAME#2, NAME#3 and so on, and HOLDFAST_SLOT is 0, 1, 2 and so on.
With --with, HOLDFAST_TOKENS has the tokens of all locks, such as {"account/1":17,"account/2":9}.

The command does not get the backend's credentials, unless --keep-env is given: ` + backends.CredentialVariables() + `.

Signals: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the process group within 0.1s. A signal that the group was
sent too, for example by a service manager, is not forwarded. After one of the first four signals holdfast ends when the command does:
--keep does not run it again, and --min-hold does not keep the lock. A second SIGTERM, more than one second after the first, kills the
command. SIGHUP and SIGINT stay ignored if holdfast was started so, as by nohup. SIGQUIT is ignored only together with SIGINT.

If holdfast itself is killed with SIGKILL, a second process, the guardian (named "lock-guardian"), kills the command's process group at
once. On Linux it also has the lock released when the command has ended, with the processes that have left its group and kept its
environment. Else, as when the guardian was killed too, or during --min-hold, the lock becomes free after the TTL. The guardian also kills
the group if holdfast is stopped until the lease has nearly expired. On Windows the command ends with holdfast.

With --listen, /metrics has the metrics of this process, with the lock's name. The process that holds the lock counts as the leader,
unless --slots, --shared or --with is given. /healthz answers 200 while holdfast runs, also while it waits. /readyz answers 200 while the
command runs under the lock, and 503 otherwise.

Exit codes:

    the command's own, or 128 + the number of the signal that ended it
    2     the command line or the backend's URL is wrong
    69    the backend failed, or did not answer within 10s of the start,
          or within --wait; with --keep it has as long as it takes. After
          its first answer, failures are retried while holdfast waits
    74    the output cannot be written
    75    the lock is held by another (--try, or --wait has passed);
          --conflict-exit-code sets another code
    76    the lock was lost and the command was stopped, or the lock
          was lost during --min-hold after the command had succeeded
    126   the command is not executable
    127   the command was not found
    128+n signal n ended holdfast while it waited

Examples:

    # A nightly job that cron starts on every machine: one machine runs it.
    holdfast run --backend azblob://myaccount/locks --try --min-hold 1m \
        nightly-report -- ./report.sh

    # A service with a hot standby: start this on two machines.
    export HOLDFAST_BACKEND='mongodb://db1,db2,db3/app?replicaSet=rs0'
    holdfast run --keep billing-worker -- ./worker --queue billing`
}

// Validate is called by the parser.
func (r *runCmd) Validate() error {
	if len(r.Command) > 0 && r.Command[0] == "--" {
		r.Command = r.Command[1:]
	}
	if len(r.Command) == 0 || r.Command[0] == "" {
		return errors.New(`give the lock's name and, after "--", a command: holdfast run [flags] NAME -- COMMAND [ARGUMENT...]`)
	}
	if err := backends.CheckName(r.Name); err != nil {
		return err
	}
	for _, name := range r.With {
		if err := backends.CheckName(name); err != nil {
			return fmt.Errorf("--with: %w", err)
		}
	}
	if len(r.With) > 0 && (r.Slots > 1 || r.Shared) {
		return errors.New("--with is for locks that one command holds alone: leave out --slots and --shared")
	}
	if r.ConflictExitCode < 0 || r.ConflictExitCode > 255 {
		return fmt.Errorf("--conflict-exit-code %d is invalid: must be from 0 to 255", r.ConflictExitCode)
	}
	if r.Listen == "" && r.TokenFile != "" {
		return errors.New("--token-file is for --listen, which is missing")
	}
	if r.Listen != "" {
		loopback, err := checkListen(r.Listen)
		if err != nil {
			return err
		}
		if !loopback && r.TokenFile == "" {
			return fmt.Errorf("--listen %s lets other machines read the metrics: give --token-file, or listen on 127.0.0.1", r.Listen)
		}
	}
	if r.Wait != nil && *r.Wait == 0 {
		r.Try = true
	}
	return nil
}

var errNoName = exitcode.With(exitcode.Usage,
	errors.New(`the lock's name is missing before "--": holdfast run [flags] NAME -- COMMAND [ARGUMENT...]`))

// lacksName reports whether no name was given before "--". The parser then takes the
// command's first word for the name.
func (r *runCmd) lacksName(args []string) bool {
	_, after, found := cutAt(args, "--")
	return found && slices.Equal(after, append([]string{r.Name}, r.Command...))
}

func cutAt(args []string, separator string) (before, after []string, found bool) {
	i := slices.Index(args, separator)
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// clientOptions returns the library's options for the flags that were given.
func (r *runCmd) clientOptions() []holdfast.ClientOption {
	opts := []holdfast.ClientOption{holdfast.WithSlots(r.Slots)}
	if r.Shared {
		opts = append(opts, holdfast.WithShared())
	}
	if r.TTL > 0 {
		opts = append(opts, holdfast.WithTTL(r.TTL))
	}
	if r.Grace > 0 {
		opts = append(opts, holdfast.WithGrace(r.Grace))
	}
	if r.Owner != "" {
		opts = append(opts, holdfast.WithOwner(r.Owner))
	}
	return opts
}

// runner carries out one "holdfast run".
type runner struct {
	*runCmd
	log        *messages.Log
	events     *eventLogger
	client     *holdfast.Client
	signals    signals.Caught
	executable string    // path of the command
	backend    string    // its URL
	waitStart  time.Time // when this wait began, for --wait
	answered   func()    // called when the backend has answered
	acquired   bool      // the lock was acquired at least once
	endBy      time.Time // when release and close must be over; zero: nothing was released, and no signal has come
	probes     probes
}

// Run waits for the lock and runs the command; with --keep, again after each loss.
func (r *runCmd) Run(a *app) (err error) {
	if r.lacksName(a.args) {
		return errNoName
	}
	path, err := child.FindExecutable(r.Command[0])
	if err != nil {
		return fmt.Errorf("%s: %w", backends.Redact(strconv.Quote(r.Command[0])), err)
	}
	stop := a.reportSlowAnswer()
	defer stop()
	run := &runner{runCmd: r, log: a.log, signals: signals.Catch(), executable: path, backend: a.backend, waitStart: time.Now(),
		answered: stop, events: &eventLogger{log: a.log, backend: backends.Display(a.backend), answered: stop, try: r.Try}}
	if r.Listen != "" {
		end, err := run.listen()
		if err != nil {
			return err
		}
		defer end()
	}
	if err := run.open(a); err != nil {
		return err
	}
	defer run.close()
	for {
		lost, err := run.runOnce()
		// Promise 9: with --keep a loss leads back to waiting for the lock.
		if !lost || !r.Keep || run.signals.EndRequested {
			return err
		}
		run.waitStart = time.Now()
	}
}

// withWaitLimit applies --wait to a context. The wait began at r.waitStart.
func (r *runner) withWaitLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Wait == nil || r.Try {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, r.waitStart.Add(*r.Wait))
}

// open connects to the backend, which may start later than holdfast.
func (r *runner) open(a *app) error {
	return r.signals.DuringWithin(callTimeout, func(ctx context.Context) error {
		if limit, _ := r.startLimit(); limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.waitStart.Add(limit))
			defer cancel()
		}
		mayHelp := func(err error) bool { return passing(err) || r.Keep && !errors.Is(err, driver.ErrInvalid) }
		op := holdfast.Event{Op: "open the backend for", Name: r.Name}
		err := r.events.untilAnswered(ctx, op, mayHelp, func(ctx context.Context) (err error) {
			r.client, err = a.open(ctx, r.events, append(r.clientOptions(), r.probes.options...)...)
			return err
		})
		switch {
		case err == nil:
			r.events.client.Store(r.client)
			return nil
		case ctx.Err() != nil && mayHelp(err): // if a signal has ended the wait, its error replaces this one
			return r.noAnswer(err)
		}
		return r.asGraceError(err)
	})
}

// waitLimitText returns the preposition with the limit of the wait, or "" without a limit.
func (r *runner) waitLimitText(preposition string) string {
	if r.Wait == nil || r.Try {
		return ""
	}
	return preposition + " --wait " + driver.FormatDuration(*r.Wait)
}

// close closes the client. By then the lock is released, or the failure to do so is logged.
func (r *runner) close() {
	end := r.endBy
	switch {
	case !r.acquired:
		end = time.Now().Add(idleShutdownTimeout)
	case end.IsZero():
		end = time.Now().Add(shutdownTimeout)
	}
	err := r.signals.During(func(ctx context.Context) error {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		return r.client.Shutdown(ctx)
	})
	if err != nil {
		r.log.Verbosef("%v", err)
	}
}

// errLost carries the exit code of a loss, which is logged when it is noticed.
var errLost = exitcode.With(exitcode.Lost, nil)

// runOnce acquires the lock, runs the command and releases the lock. lost means that the
// command was stopped, or not started, because the lock was lost. The error carries the
// exit code.
func (r *runner) runOnce() (lost bool, err error) {
	hold, err := r.acquire()
	if err != nil {
		return false, err
	}
	defer r.release(hold.lease)
	return r.runCommand(hold)
}

// acquire acquires the lock, within the limits of --try and --wait.
func (r *runner) acquire() (held, error) {
	r.endBy = time.Time{}
	r.events.waiting.Store(true)
	defer r.events.waiting.Store(false)
	granted := make(chan held, 1)
	request := func(ctx context.Context) error {
		hold, err := r.request(ctx)
		if err == nil {
			granted <- hold
		}
		return err
	}
	err := r.signals.DuringWithin(callTimeout, func(ctx context.Context) error {
		first, end := r.withStartLimit(ctx)
		defer end()
		if r.Try { // another request could be refused for the lock that one of unknown outcome has left behind
			mayHelp := func(err error) bool { return driver.NotSent(err) && !r.events.heard.Load() }
			return r.events.untilAnswered(first, holdfast.Event{Op: "acquire", Name: r.Name}, mayHelp, request)
		}
		ctx, cancel := r.withWaitLimit(first)
		defer cancel()
		for {
			err := request(ctx)
			// Promise 9: what a person must mend ends the first wait at once, and no later one.
			if !r.acquired || !driver.Lasting(err) || ctx.Err() != nil {
				return err
			}
			r.events.logFailure(holdfast.Event{Op: "acquire", Name: r.Name, Err: err}, time.Now())
			select {
			case <-time.After(reopenInterval):
			case <-ctx.Done():
			}
		}
	})
	var hold held
	select {
	case hold = <-granted:
	default:
	}
	var signaled *exitcode.Error
	switch {
	case errors.As(err, &signaled):
		if r.endBy = r.signals.AskedAt.Add(shutdownTimeout); hold.lease != nil {
			r.release(hold.lease)
		}
		return held{}, err
	case err != nil:
		return held{}, r.notAcquiredError(err)
	}
	r.acquired = true
	r.answered()
	r.events.waiting.Store(false)
	r.log.Infof("acquired %q%s, token %d, on %s", hold.Name(), afterWaiting(time.Since(r.waitStart)), hold.first.Token(), r.events.backend)
	return hold, nil
}

// notAcquiredError says why the lock was not acquired: its holder, or the backend's failure,
// comes first.
func (r *runner) notAcquiredError(err error) error {
	var held *holdfast.HeldError
	var failed *driver.OpError
	gaveUp := r.waitLimitText("; gave up after")
	switch {
	case errors.As(err, &held):
		slots := ""
		if r.Slots > 1 {
			slots = fmt.Sprintf("all %d slots of %q are held, one of them: ", r.Slots, r.Name)
		}
		err = fmt.Errorf("%s%w, on %s%s", slots, held, r.events.backend, gaveUp)
	case driver.Lasting(err): // at once
		return exitcode.With(exitcode.Of(err), err)
	case r.unanswered(): // with --try a failure can come sooner
		return r.noAnswer(err)
	case errors.As(err, &failed):
		return exitcode.With(exitcode.Of(failed), fmt.Errorf("%w%s", failed, gaveUp))
	case !errors.Is(err, context.DeadlineExceeded):
		return exitcode.With(exitcode.Of(err), err)
	default:
		err = fmt.Errorf("lock %q was not free, on %s%s", r.Name, r.events.backend, gaveUp)
	}
	return exitcode.With(r.ConflictExitCode, exitcode.ConflictError{Err: err})
}

func afterWaiting(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return " after " + format.Duration(d)
}
