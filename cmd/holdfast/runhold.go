package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
)

// lease is what keeps the command running: a hold of one lock or of several.
type lease interface {
	child.Lease
	Release(ctx context.Context) error
}

// several is the lease of --with.
type several struct {
	*holdfast.MultiHold
	names string
}

func (s several) Name() string { return s.names }

// free returns the time until all locks of a lease are free, unless they are released before.
func free(l lease) time.Duration {
	latest := l.ExpiresIn()
	if s, ok := l.(several); ok { // ExpiresIn is that of the first
		for _, name := range s.Names() {
			latest = max(latest, s.Hold(name).ExpiresIn())
		}
	}
	return max(latest, 0)
}

// held is what was acquired.
type held struct {
	lease
	first  *holdfast.Hold    // of NAME
	tokens map[string]uint64 // of all locks, with --with
}

// request asks for the lock, or with --with for all locks, and waits unless --try is given.
func (r *runner) request(ctx context.Context) (held, error) {
	if len(r.With) == 0 {
		lock := r.client.Lock
		if r.Try {
			lock = r.client.TryLock
		}
		hold, err := lock(ctx, r.Name)
		if err != nil {
			return held{}, err
		}
		return held{lease: hold, first: hold}, nil
	}
	lock := r.client.LockAll
	if r.Try {
		lock = r.client.TryLockAll
	}
	all, err := lock(ctx, append([]string{r.Name}, r.With...))
	if err != nil {
		return held{}, err
	}
	return held{several{all, strings.Join(all.Names(), ", ")}, all.Hold(r.Name), all.Tokens()}, nil
}

// allTokens are those of all locks.
func (h held) allTokens() []uint64 {
	if h.tokens == nil {
		return []uint64{h.first.Token()}
	}
	return slices.Collect(maps.Values(h.tokens))
}

// runCommand runs the command under a hold.
func (r *runner) runCommand(hold held) (lost bool, err error) {
	start := time.Now()
	r.log.Flush() // the messages so far come before the command's output
	command, unguarded, err := child.Start(r.executable, r.Command, r.environment(hold), hold.Err)
	if errors.Is(err, holdfast.ErrLost) { // this process was paused just now
		r.log.Errorf("lost %q before the command was started (%v)", hold.Name(), err)
		return true, errLost
	}
	if err != nil {
		code := exitcode.NotExecutable
		if errors.Is(err, os.ErrNotExist) { // the file, or what it names as its interpreter
			code = exitcode.NotFound
		}
		return false, exitcode.With(code, fmt.Errorf("cannot start %s: %w", format.Text(r.executable), err))
	}
	r.log.Verbosef("started process %d", command.PID())
	if unguarded != nil {
		r.log.Errorf("cannot start a guardian (%v): %s", unguarded, child.UnguardedRisk)
	}
	if err := r.releaseAfterKill(command, hold); err != nil {
		r.log.Verbosef("if holdfast is killed, %q is not released: %v", hold.Name(), err)
	}
	r.events.running.Store(&runningCommand{hold.allTokens(), command})
	r.probes.hold.Store(&hold)
	outcome := command.Supervise(hold, r.signals.C, r.log, r.KillAfter)
	r.probes.hold.Store(nil)
	r.events.running.Store(nil)
	command.Close() // gives the terminal back, whose signals end --min-hold
	r.log.Verbosef("the command ended with exit code %d", outcome.Code)
	r.signals.EndRequested = outcome.EndRequested
	if outcome.Lost {
		return true, errLost
	}
	err = r.waitMinHold(hold, start)
	if outcome.Code != 0 {
		err = exitcode.With(outcome.Code, nil)
	}
	return false, err
}

// waitMinHold keeps the lock until --min-hold has passed or a signal comes, whether the command has
// succeeded or not: a job that has done its work and then failed must not run a second time, either.
// Losing the lock meanwhile is an error, because another may run the job again too early. The command
// itself has ended, so --keep does not run it again.
func (r *runner) waitMinHold(hold lease, start time.Time) error {
	left := r.MinHold - time.Since(start)
	if left <= 0 || r.signals.EndRequested {
		return nil
	}
	r.log.Verbosef("keeping %q for another %s (--min-hold)", hold.Name(), format.Duration(left))
	_ = r.signals.During(func(ctx context.Context) error { // a signal does not change the exit code: the command has ended
		select {
		case <-time.After(left):
		case <-hold.Context().Done():
		case <-ctx.Done():
		}
		return nil
	})
	if err := hold.Err(); errors.Is(err, holdfast.ErrLost) {
		r.log.Errorf("lost %q while it was kept for --min-hold (%v); the command had ended", hold.Name(), err)
		return errLost
	}
	return nil
}

// environment returns the command's environment: holdfast's own without credentials, and
// the variables that describe the lock.
func (r *runner) environment(hold held) []string {
	var env []string
	lock := map[string]string{
		envToken:  strconv.FormatUint(hold.first.Token(), 10),
		envName:   hold.first.Name(),
		envSlot:   strconv.Itoa(hold.first.Slot()),
		envOwner:  hold.first.Lease().Owner,
		envTokens: "", // those of an outer run are not this command's
	}
	if hold.tokens != nil {
		text, _ := json.Marshal(hold.tokens) // numbers under valid names: it does not fail
		lock[envTokens] = string(text)
	}
	for _, entry := range os.Environ() {
		key, value, _ := strings.Cut(entry, "=")
		if _, replaced := lock[key]; !replaced && (r.KeepEnv || !backends.IsCredential(key, value, r.backend)) {
			env = append(env, entry)
		}
	}
	for key, value := range lock {
		if value != "" || key != envTokens {
			env = append(env, key+"="+value)
		}
	}
	return env
}

// errReleaseHangs means that no answer came, although the time limit of the request itself was over.
var errReleaseHangs = errors.New("the backend does not answer")

// release releases the lock. A failure is logged but does not change the exit code: the
// command has ended, and the lock becomes free when its lease expires. A signal does not
// change the exit code either; it ends the retries.
//
// It sets the time limit of release and close together. After a loss that is little more than the lease's end:
// from then on there is nothing to release.
func (r *runner) release(hold lease) {
	lost, limit := errors.Is(hold.Err(), holdfast.ErrLost), shutdownTimeout
	if lost {
		limit = min(limit, free(hold)+2*idleShutdownTimeout)
	}
	if end := time.Now().Add(limit); r.endBy.IsZero() || end.Before(r.endBy) {
		r.endBy = end
	}
	tryUntil := r.endBy.Add(-idleShutdownTimeout) // the rest is for close
	var err error
	_ = r.signals.During(func(ctx context.Context) error { // only Release's own error says whether the lock was released
		ctx, cancel := context.WithDeadline(ctx, tryUntil)
		defer cancel()
		released := make(chan error, 1)
		go func() { released <- hold.Release(ctx) }() // Shutdown waits for it, too
		select {
		case err = <-released:
		case <-time.After(time.Until(tryUntil) + hangTimeout):
			err = errReleaseHangs
		}
		return err
	})
	switch {
	case err != nil && lost && free(hold) == 0:
		r.log.Verbosef("no release of %q, whose lease has expired: %v", hold.Name(), err)
	case err != nil:
		r.log.Errorf("could not release %q; it becomes free within %s: %v", hold.Name(), format.Duration(free(hold)), err)
	case !lost:
		r.log.Infof("released %q", hold.Name())
	}
}
