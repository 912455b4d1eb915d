package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

type runCmd struct {
	Name    string   `arg:"" help:"Name of the lock."`
	Command []string `arg:"" passthrough:"partial" help:"The command and its arguments, after \"--\"."`

	Try              bool           `group:"wait" xor:"wait" help:"Do not wait: if another holds the lock, exit with 75 at once. Connecting to the backend may take up to 10 s. A run remembers nothing of earlier ones: after the server's clock stepped back, only a run that waits takes a dead holder's lock over."`
	Wait             *time.Duration `group:"wait" xor:"wait" placeholder:"DURATION" help:"Wait no longer than this, such as 90s or 5m, then exit with 75. 0s is --try. Connecting to the backend counts: one that is not reached by then means 69. Default: wait indefinitely."`
	ConflictExitCode int            `group:"wait" short:"E" default:"75" placeholder:"CODE" help:"The exit code if another holds the lock, instead of 75."`

	TTL       time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"How long the lock outlives a holder that died or cannot reach the backend. Default: 30s."`
	Grace     time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"How long before the lock could be another's the command is told to stop, if the lock could not be renewed. Default: a sixth of the TTL."`
	Slots     int           `group:"hold" default:"1" help:"Let up to this many hold the lock at once, each in a slot of its own: a semaphore. All who share the lock should give the same number."`
	Owner     string        `group:"hold" help:"What others see as the holder. Default: host/pid."`
	Keep      bool          `group:"hold" help:"After a loss wait for the lock again and run the command again, instead of exiting with 76; also wait for a backend that cannot be reached at the start. --try and --wait bound each wait."`
	MinHold   time.Duration `group:"hold" placeholder:"DURATION" help:"Keep the lock for at least this long, even if the command succeeds sooner, unless a signal asks holdfast to end: so that of several machines whose clocks differ a little one alone runs a job."`
	KillAfter time.Duration `group:"hold" positive:"" placeholder:"DURATION" help:"How long the command may take to end after a SIGTERM was passed on, before it is killed. Default: as long as it likes, or until a second SIGTERM, more than a second after the first."`

	KeepEnv bool `group:"command" help:"Pass on every variable of the environment, also those with the backend's credentials."`
}

// Help is shown below the flags.
func (*runCmd) Help() string {
	return `The lock is renewed while the command runs and released after it has ended: after the command itself and every process left in its process group. (What is left is sent SIGTERM, and SIGKILL two seconds later; after a SIGTERM to holdfast it has as long as the command would have had. A process that makes a session or group of its own escapes this.)

If the lock is lost because it could not be renewed in time, or was broken by somebody, the process group gets SIGTERM at once and SIGKILL before the lock can be another's.

The command finds HOLDFAST_TOKEN, HOLDFAST_NAME and HOLDFAST_OWNER in its environment. The token grows with every holder of the lock: a storage that remembers the highest one it has seen can refuse a holder that was paused and is late. With --slots each slot is a lock with tokens of its own: HOLDFAST_NAME is NAME for the first slot, NAME#2 for the second, and so on, and HOLDFAST_SLOT counts from 0. Variables that hold a credential of the backend are not passed on: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PASSWORD, AZURE_PASSWORD, and HOLDFAST_BACKEND if it holds a password. --keep-env passes them on.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the process group, within 0.1 s. The first four also ask holdfast itself to end: after one of them the command is not run again (--keep), and the lock is not kept any longer than the command runs (--min-hold). None of them is passed on if the process group was sent it, too, as by a service manager. A second SIGTERM more than a second after the first kills the command.

If holdfast itself is killed (SIGKILL), the lock frees itself after the TTL. A second process of holdfast, the guardian ("lock-guardian" in a list of processes), kills the command's process group at once; it also does so if holdfast is stopped and the lease is nearly over. On Windows the command ends with holdfast.

Exit codes:

    the command's own, or 128 + the number of the signal that ended it
    2     wrong arguments, or the backend's URL is wrong
    69    the backend failed (while waiting it is tried again and
          again), or could not be reached at the start, within --wait
    75    the lock is held by another: --try, or --wait ran out
          (--conflict-exit-code)
    76    the lock was lost, and the command was stopped; or the lock
          was lost during --min-hold
    126   the command is not executable
    127   the command was not found
    128+n a signal ended the waiting

Examples:

    # a nightly job that cron starts on every machine: one runs it, the others skip it
    holdfast run --backend azblob://myaccount/locks --try --min-hold 1m nightly-report -- ./report.sh

    # a service with a hot standby: start this on two machines
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
	if err := checkName(r.Name); err != nil {
		return err
	}
	if r.ConflictExitCode < 0 || r.ConflictExitCode > 255 {
		return fmt.Errorf("--conflict-exit-code %d is invalid: must be from 0 to 255", r.ConflictExitCode)
	}
	if r.Wait != nil && *r.Wait == 0 {
		r.Try = true
	}
	return nil
}

// errNoName: what comes after "--" is the command, so the name must be before it.
var errNoName = &exitError{codeUsage, errors.New(`the lock's name is missing before "--": holdfast run [flags] NAME -- COMMAND [ARGUMENT...]`)}

// lacksName reports whether the parser has taken the command's first word for the name,
// which it does if nothing is before "--".
func (r *runCmd) lacksName(args []string) bool {
	_, after, found := cutAt(args, "--")
	return found && slices.Equal(after, append([]string{r.Name}, r.Command...))
}

func cutAt(args []string, at string) (before, after []string, found bool) {
	i := slices.Index(args, at)
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// options are the flags in the library's words; what was not given keeps its default.
func (r *runCmd) options() []holdfast.ClientOption {
	opts := []holdfast.ClientOption{holdfast.WithSlots(r.Slots)}
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

// runner is one "holdfast run".
type runner struct {
	*runCmd
	say     *reporter
	news    *news
	client  *holdfast.Client
	signals signals
	path    string
	start   time.Time // of this wait, for --wait
	heard   func()    // the backend has answered
	held    bool      // a lock, at some time
}

// Run waits for the lock and runs the command, again and again with --keep.
func (r *runCmd) Run(a *app) (err error) {
	if r.lacksName(a.args) {
		return errNoName
	}
	path, err := runnable(r.Command[0])
	if err != nil {
		return err
	}
	stop := a.trying()
	defer stop()
	run := &runner{runCmd: r, say: a.say, signals: catchSignals(), path: path, start: time.Now(), heard: stop,
		news: &news{say: a.say, backend: shownBackend(a.backend), heard: stop, try: r.Try}}
	if err := run.open(a); err != nil {
		return err
	}
	defer run.close()
	for {
		lost, err := run.once()
		if !lost || !r.Keep || run.signals.ended {
			return err
		}
		run.start = time.Now()
	}
}

// limit applies --wait to a wait that began at r.start.
func (r *runner) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Wait == nil || r.Try {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, r.start.Add(*r.Wait))
}

// reopenAfter is how long --keep waits before it tries again to open the backend.
const reopenAfter = 5 * time.Second

// open connects to the backend. With --keep it does so until that works: whoever
// campaigns forever must not end because the backend starts later. --wait bounds it.
func (r *runner) open(a *app) error {
	return r.signals.during(func(ctx context.Context) (err error) {
		ctx, cancel := r.limit(ctx)
		defer cancel()
		for {
			r.client, err = a.open(ctx, r.news.observe, r.options()...)
			if err == nil {
				r.news.client.Store(r.client)
				return nil
			}
			if errors.Is(err, driver.ErrInvalid) || ctx.Err() == nil && !r.Keep {
				return r.tooMuchGrace(err)
			}
			if ctx.Err() != nil {
				return r.notReached(err)
			}
			r.news.failure(holdfast.Event{Op: "open the backend for", Name: r.Name, Err: err}, time.Now())
			select {
			case <-time.After(reopenAfter):
			case <-ctx.Done():
				return r.notReached(err)
			}
		}
	})
}

// notReached says that --wait ran out before the backend was open. If a signal ended
// the waiting instead, only the signal is reported.
func (r *runner) notReached(err error) error {
	return &exitError{codeUnavailable, fmt.Errorf("the backend could not be reached%s: %w", r.within(), err)}
}

// within says how long was waited, if there was a limit.
func (r *runner) within() string {
	if r.Wait == nil || r.Try {
		return ""
	}
	return " within --wait " + text.Duration(*r.Wait)
}

// close tidies up. The lock itself is released already, or said not to be.
func (r *runner) close() {
	limit := shutdownTimeout
	if !r.held {
		limit = closeTimeout
	}
	err := r.signals.during(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return r.client.Shutdown(ctx)
	})
	if err != nil {
		r.say.detail("%v", err)
	}
}

// errLost carries the exit code; what happened is told when it does.
var errLost = &exitError{code: codeLost}

// once takes the lock, runs the command and releases the lock. lost says that the
// command was stopped since the lock was lost; the error carries the exit code.
func (r *runner) once() (lost bool, err error) {
	hold, err := r.lock()
	if err != nil {
		return false, err
	}
	defer r.release(hold)
	if err := hold.Err(); err != nil { // this process was paused just now
		r.say.error("lost %q before the command was started (%v)", hold.Name(), err)
		return true, errLost
	}
	return r.command(hold)
}

// lock waits for the lock as the flags say.
func (r *runner) lock() (*holdfast.Hold, error) {
	r.news.wait(true)
	defer r.news.wait(false)
	var hold *holdfast.Hold
	err := r.signals.during(func(ctx context.Context) (err error) {
		if r.Try {
			hold, err = r.client.TryLock(ctx, r.Name)
			return err
		}
		ctx, cancel := r.limit(ctx)
		defer cancel()
		hold, err = r.client.Lock(ctx, r.Name)
		return err
	})
	var signaled *exitError
	switch {
	case errors.As(err, &signaled):
		if hold != nil {
			r.release(hold)
		}
		return nil, err
	case err != nil:
		return nil, r.notAcquired(err)
	}
	r.held = true
	r.heard()
	r.news.wait(false)
	r.say.info("acquired %q, token %d%s, on %s", hold.Name(), hold.Token(), afterWaiting(time.Since(r.start)), r.news.backend)
	return hold, nil
}

// notAcquired says why waiting came to nothing, what kept the lock first. If it ended
// before any answer came, by the time limit alone, then that is what it is: not our turn.
func (r *runner) notAcquired(err error) error {
	var held *holdfast.HeldError
	var failed *driver.OpError
	switch {
	case errors.As(err, &held):
		slots := ""
		if r.Slots > 1 {
			slots = fmt.Sprintf("all %d slots of %q are held, one of them: ", r.Slots, r.Name)
		}
		err = fmt.Errorf("%s%w, on %s%s", slots, held, r.news.backend, r.gaveUp())
	case errors.As(err, &failed):
		return &exitError{codeOf(failed), fmt.Errorf("%w%s", failed, r.gaveUp())}
	case !errors.Is(err, context.DeadlineExceeded):
		return &exitError{codeOf(err), err}
	default:
		err = fmt.Errorf("lock %q was not free, on %s%s", r.Name, r.news.backend, r.gaveUp())
	}
	return &exitError{r.ConflictExitCode, notHeldError{err}}
}

// gaveUp says how long was waited, if there was a limit.
func (r *runner) gaveUp() string {
	if within := r.within(); within != "" {
		return "; gave up" + strings.Replace(within, "within", "after", 1)
	}
	return ""
}

func afterWaiting(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return " after " + seconds(d)
}

// command runs the command under a hold.
func (r *runner) command(hold *holdfast.Hold) (lost bool, err error) {
	start := time.Now()
	r.say.flush(flushTimeout) // the command's output comes after it
	child, unguarded, err := startChild(r.path, r.Command, r.environment(hold))
	if err != nil {
		return false, &exitError{codeNotRunnable, fmt.Errorf("cannot start %s: %w", printable(r.path), err)}
	}
	defer child.close()
	r.say.detail("started process %d", child.pid)
	if unguarded != nil {
		r.say.error("cannot start a guardian (%v): %s", unguarded, withoutGuardian)
	}
	r.news.working.Store(hold.Token())
	s := supervisor{hold: hold, child: child, signals: r.signals.caught, say: r.say, killAfter: r.KillAfter}
	code := s.wait()
	r.news.working.Store(0)
	r.say.detail("the command ended with exit code %d", code)
	r.signals.ended = s.ending
	if s.lost {
		return true, errLost
	}
	if code == 0 {
		return false, r.waitMinHold(hold, start)
	}
	return false, &exitError{code: code}
}

// waitMinHold keeps the lock until --min-hold is over or a signal comes. A lock that is
// lost meanwhile is an error: another may do the job again too early. The command itself
// has succeeded, so it is not run again.
func (r *runner) waitMinHold(hold *holdfast.Hold, start time.Time) error {
	left := r.MinHold - time.Since(start)
	if left <= 0 || r.signals.ended {
		return nil
	}
	r.say.detail("keeping %q for another %s", hold.Name(), seconds(left))
	_ = r.signals.during(func(ctx context.Context) error { // cut short by a signal or not: the command's work is done
		select {
		case <-time.After(left):
		case <-hold.Context().Done():
		case <-ctx.Done():
		}
		return nil
	})
	if err := hold.Err(); errors.Is(err, holdfast.ErrLost) {
		r.say.error("lost %q while it was kept for --min-hold (%v); the command had succeeded", hold.Name(), err)
		return errLost
	}
	return nil
}

// environment is holdfast's own less its secrets, and what the command may want to know
// of the lock.
func (r *runner) environment(hold *holdfast.Hold) []string {
	var env []string
	ours := map[string]string{
		envToken: strconv.FormatUint(hold.Token(), 10),
		envName:  hold.Name(),
		envSlot:  strconv.Itoa(hold.Slot()),
		envOwner: hold.Lease().Owner,
	}
	for _, entry := range os.Environ() {
		key, value, _ := strings.Cut(entry, "=")
		if _, replaced := ours[key]; !replaced && (r.KeepEnv || !isSecret(key, value)) {
			env = append(env, entry)
		}
	}
	for key, value := range ours {
		env = append(env, key+"="+value)
	}
	return env
}

// release releases the lock. A failure is reported but does not change the exit code:
// the command's work is done, and the lock frees itself in the end. Neither does a
// signal that comes meanwhile: it ends the retries.
func (r *runner) release(hold *holdfast.Hold) {
	lost := errors.Is(hold.Err(), holdfast.ErrLost)
	var err error
	_ = r.signals.during(func(ctx context.Context) error { // what became of the lock only Release knows
		ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
		defer cancel()
		err = hold.Release(ctx)
		return err
	})
	switch {
	case err != nil:
		r.say.error("could not release %q; others get it in %s at the latest: %v", hold.Name(), seconds(max(hold.ExpiresIn(), 0)), err)
	case !lost:
		r.say.info("released %q", hold.Name())
	}
}
