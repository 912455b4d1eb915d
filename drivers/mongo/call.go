package mongo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// op describes a call for its errors.
type op struct {
	verb, name string
	ids        []string // of leases; never shown
	invalid    error    // of the arguments
}

// do runs the commands of one call, as run does, and wraps their error in an OpError.
func (l *Locker) do(ctx context.Context, o op, commands func(context.Context) error) error {
	unsent := true
	err := l.run(ctx, o, func(ctx context.Context) (err error) {
		if err = ctx.Err(); err != nil {
			return err
		}
		err = commands(ctx)
		first, is := err.(*unsentError) //nolint:errorlint // it is not wrapped; another's may be the cause of a context's end
		if unsent = is; is {
			err = first.error
		}
		return err
	})
	if unsent {
		err = driverutil.Unsent(err)
	}
	return driverutil.OpError(o.verb, backend, o.name, err)
}

func (l *Locker) run(ctx context.Context, o op, commands func(context.Context) error) error {
	if l.closing.Err() != nil {
		return driver.ErrClosed
	}
	if l.clientDisconnected.Load() {
		return errDisconnected
	}
	if o.invalid != nil {
		return o.invalid
	}
	if mongo.SessionFromContext(ctx) != nil {
		// Promise 1: in the caller's transaction a write would be invisible to others until
		// the commit, and would have the transaction's write concern.
		ctx = mongo.NewSessionContext(ctx, nil)
	}
	limited, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)() //nolint:contextcheck // the Locker's lifetime applies besides the caller's context
	began := time.Now()
	err := withoutDetails(commands(limited))
	// A release may have been applied although the read that follows is denied. So may any write, if the Go driver
	// repeated it after a lost answer and the right was revoked in between. No caller can see that repetition, and the
	// lock is then taken for one TTL, so the usual cause decides: the user never had the right.
	var after *afterWriteError
	denied := (hasCode(err, codeUnauthorized, codeAuthenticationFailed) || refusedByRule(err)) && ctx.Err() == nil && !errors.As(err, &after)
	if err == nil {
		return nil
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		// A command of this call may have been sent before. Later calls send none.
		l.clientDisconnected.Store(true)
	}
	if l.loggedIn && requiresLogin(err) {
		var curable bool
		curable, err = l.loggedOut(err, began)
		denied = denied && !curable
	}
	if mongo.IsTimeout(err) {
		if !errors.Is(err, context.DeadlineExceeded) {
			err = driver.Errorf("%w: %w", context.DeadlineExceeded, err) // the server's limit was reached first
		}
		if limit, _ := limited.Deadline(); !limit.Equal(deadlineOf(ctx)) {
			err = driver.Errorf("no answer within %v: %w", l.config.timeout, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = addCause(err, cause)
	} else if l.closing.Err() != nil {
		err = driver.Errorf("interrupted by Close: %w", err)
	}
	if err = explain(err, o.ids, l.namespace()); denied {
		err = driver.Denied(err)
	}
	return err
}

// errDisconnected is permanent: a disconnected client cannot be connected again.
var errDisconnected = driver.Errorf("%w: the program disconnected the MongoDB client", driver.ErrClosed)

// deadlineOf returns the context's deadline, or the zero time.
func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

func leaseOp(verb string, l driver.Lease, renewal bool) op {
	invalid := driver.ValidateName(l.Name, limits)
	if renewal {
		invalid = driver.ValidateRenew(l, limits)
	}
	return op{verb: verb, name: l.Name, ids: []string{l.ID.Reveal()}, invalid: invalid}
}

// explain adds advice to an error where the server's own text has none, and removes the lease
// IDs of the call, which the server's text may quote.
func explain(err error, ids []string, namespace string) error {
	var reply mongo.ServerError
	if errors.As(err, &reply) {
		return redactIDs(err, addAdvice(err, namespace), ids)
	}
	return addAdvice(err, namespace)
}

func addAdvice(err error, namespace string) error {
	if selection := unreachable(err); selection != nil {
		return selection
	}
	switch {
	case hasCode(err, codeUnauthorized):
		return denied(err, namespace)
	case refusedByRule(err):
		return adviseRule(err, namespace)
	case hasCode(err, codeAuthenticationFailed):
		return driver.Errorf("%w; check user, password and authSource", err)
	case strings.Contains(err.Error(), "requires at least"): // the Go driver's text for a server that is too old
		return driver.Errorf("the server is older than MongoDB 4.4: %w", err)
	default:
		return sayOnce(err)
	}
}

// addCause adds the cause of a context's end to an error. The context may belong to another
// lock's hold, and its cause, such as [driver.ErrLost], is then the outcome of that lock. Such
// a cause is added as text only, so that errors.Is does not match it.
func addCause(err, cause error) error {
	if driver.OutcomeKnown(cause) {
		// Promise 4: the loss of another lock is no loss of this one.
		return driver.Errorf("%w (%s)", err, driver.ErrorText(cause))
	}
	return driver.Errorf("%w (%w)", err, cause)
}

// withoutDetails drops the server's details of a document that failed validation. They may
// quote the lease ID of another program.
func withoutDetails(err error) error {
	var reply mongo.CommandError
	if errors.As(err, &reply) && reply.Code == codeDocumentValidationFailure {
		reply.Raw = nil
		return reply
	}
	var failed mongo.WriteException
	if !errors.As(err, &failed) {
		return err
	}
	failed.Raw = nil
	failed.WriteErrors = slices.Clone(failed.WriteErrors)
	for i := range failed.WriteErrors {
		failed.WriteErrors[i].Details, failed.WriteErrors[i].Raw = nil, nil
	}
	return failed
}

// redactIDs removes lease IDs from the text of an error with advice. If the server's error has one, the result wraps nothing,
// because the wrapped errors show the ID, too. An ID shorter than 8 bytes is no secret: any text may contain it.
func redactIDs(err, advised error, ids []string) error {
	const secret = 8
	text, found := driver.ErrorText(advised), false
	for _, id := range ids {
		if len(id) >= secret {
			found = found || strings.Contains(err.Error(), id)
			text = strings.ReplaceAll(text, id, "(lease ID)")
		}
	}
	if found || text != driver.ErrorText(advised) {
		return errors.New(text)
	}
	return advised
}

// loggedOut describes the answer requiresLogin of a call that began at the time, on a Locker that was logged in before.
// curable reports whether the next call logs in again.
func (l *Locker) loggedOut(err error, began time.Time) (curable bool, described error) {
	const text = "the server has logged out this connection, because its user was dropped, or dropped and made again; "
	switch {
	case l.sockets != nil:
		l.sockets.closeOlder(began)
		return true, &deniedError{text + "it is replaced, and the next request logs in again", err}
	case l.dial == nil:
		return false, &deniedError{text + "the Go driver does not log it in again: the program needs a new client", err}
	}
	return false, err // the URL has no user: the server has begun to require one
}
