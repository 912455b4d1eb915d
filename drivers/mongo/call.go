package mongo

import (
	"context"
	"errors"
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
