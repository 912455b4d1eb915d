package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/driver"
)

const (
	// answerTimeout is how long a command tries to reach a backend that has not answered it yet, unless --wait or --keep says
	// otherwise. It is the same for all backends, whether making a client asks the server or not. After the first answer a failure
	// is retried indefinitely.
	answerTimeout = 10 * time.Second
	// askAgain is how long after a failure holdfast asks again within answerTimeout, and reopenInterval later.
	askAgain       = time.Second
	reopenInterval = 5 * time.Second
)

// untilAnswered makes a request, and makes it again for as long as it fails and mayHelp says that another one may succeed. It
// returns the error of the last one. The failures are logged as those of op.
func (l *eventLogger) untilAnswered(ctx context.Context, op holdfast.Event, mayHelp func(error) bool,
	request func(context.Context) error) error {
	for start := time.Now(); ; {
		err := request(ctx)
		switch {
		case err == nil || !mayHelp(err):
			return err
		case ctx.Err() != nil:
			return cmp.Or(op.Err, err) // the end of the context does not say why the backend was not reached
		}
		op.Err = err
		l.logFailure(op, time.Now())
		interval := askAgain
		if time.Since(start) >= answerTimeout {
			interval = reopenInterval
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return err
		}
	}
}

// passing reports whether an error may be over without a person who changes something.
func passing(err error) bool { return !driver.Lasting(err) && !errors.Is(err, driver.ErrInvalid) }

// around is called for each call of the backend, and notes that it has answered a request for a lock.
func (l *eventLogger) around(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	answer := next(ctx, call)
	if call.Method == driver.MethodTryAcquire && driver.OutcomeKnown(answer.Err) && !errors.Is(answer.Err, driver.ErrClosed) {
		l.heard.Store(true)
	}
	return answer
}

// errNoAnswer ends the context of a first wait.
var errNoAnswer = errors.New("no answer")

// startLimit is how long the backend's first answer is waited for, and how a message says that; 0: indefinitely.
func (r *runner) startLimit() (limit time.Duration, text string) {
	switch {
	case r.Wait != nil && !r.Try:
		return *r.Wait, "--wait " + driver.FormatDuration(*r.Wait)
	case r.Keep:
		return 0, ""
	}
	return answerTimeout, driver.FormatDuration(answerTimeout)
}

// withStartLimit ends a context if the backend has not answered in time. The wait began at r.waitStart.
func (r *runner) withStartLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, _ := r.startLimit()
	if limit == 0 || r.events.heard.Load() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(r.waitStart.Add(limit)), func() {
		if !r.events.heard.Load() {
			cancel(errNoAnswer)
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// unanswered reports whether the time for the backend's first answer is over.
func (r *runner) unanswered() bool {
	limit, _ := r.startLimit()
	return limit > 0 && !r.events.heard.Load() && time.Since(r.waitStart) >= limit
}

// noAnswer is noAnswerError after the time for the backend's first answer.
func (r *runner) noAnswer(err error) error {
	_, within := r.startLimit()
	return noAnswerError(r.events.backend, within, err)
}

// noAnswerError says that the backend was not reached in time. err is the error of the last request.
func noAnswerError(backend, within string, err error) error {
	var failed *driver.OpError
	if errors.As(err, &failed) {
		err = failed // without the end of the context
	}
	return exitcode.With(exitcode.Unavailable, fmt.Errorf("could not reach %s within %s: %w", backend, within, err))
}

// openInTime opens the backend for a command that follows locks, which has no flag for the time.
func (a *app) openInTime(ctx context.Context, open opener, opts []holdfast.ClientOption) (client *holdfast.Client, err error) {
	err = a.inTime(ctx, holdfast.Event{Op: "open the backend"}, func(ctx context.Context) (err error) {
		client, err = open(ctx, opts...)
		return err
	})
	return client, err
}

// askFirst asks the backend for the first time: making a client does not do that on every backend. It reports that there are no
// locks yet.
func (a *app) askFirst(ctx context.Context, client *holdfast.Client) error {
	missing, err := a.firstAnswer(ctx, client)
	a.reportMissingStore(missing)
	return err
}

// firstAnswer is askFirst for a caller that reports a missing store itself.
func (a *app) firstAnswer(ctx context.Context, client *holdfast.Client) (missing string, err error) {
	err = a.inTime(ctx, holdfast.Event{Op: "look for the locks"}, func(ctx context.Context) (err error) {
		missing, err = findStore(ctx, client)
		return err
	})
	if driver.Lasting(err) || ctx.Err() != nil { // the right to see that may be missing, or a signal has come
		a.log.Verbosef("%v", err)
		err = nil
	}
	return missing, err
}

// inTime makes a request until it succeeds, but no longer than answerTimeout.
func (a *app) inTime(ctx context.Context, op holdfast.Event, request func(context.Context) error) error {
	stop := a.reportSlowAnswer()
	defer stop()
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	failures := &eventLogger{log: a.log, answered: stop}
	err := failures.untilAnswered(limited, op, passing, request)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && passing(err) {
		return noAnswerError(backends.Display(a.backend), driver.FormatDuration(answerTimeout), err)
	}
	return err
}
