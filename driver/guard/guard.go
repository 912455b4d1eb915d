// Package guard has what the guards of all drivers share. A guard runs a holder's writes in such a way that the
// store refuses them once a later holder has come. What is written here once is all around that: a guard's
// arguments, the context that ends with the hold, the report to the hook, and the errors. For a program that uses a
// driver only [Hold], [ErrFenced] and [ErrInDoubt] matter.
//
// A driver's guard is then
//
//	var guards = guard.Kind{Backend: "acme", Method: "guard", Limits: limits}
//
//	func NewGuard(locks driver.Locker, …) (*Guard, error) {
//		locker, err := guard.LockerOf[Locker](locks) // also of one that is wrapped
//		if err != nil {
//			return nil, guards.Error("", err)
//		}
//		…
//	}
//
//	func (g *Guard) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, …) error) error {
//		if fn == nil {
//			return guards.Error("", guard.ErrNoFunction)
//		}
//		return guards.Run(ctx, hold, func(ctx context.Context, lease driver.Lease) error {
//			… // check the lease at the store
//			if err := fn(ctx, …); err != nil {
//				return guard.FromFunction(err)
//			}
//			if err := hold.Err(); err != nil {
//				return err
//			}
//			… // write what was to be guarded, on the store's condition that the lease has the lock
//		})
//	}
//
// A fence, which compares tokens and knows no hold, uses [CheckToken] and [Kind.Error].
package guard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// ErrFenced says that a later holder of the lock has raised the fence. It also matches
// driver.ErrLost, since the lease must have ended.
var ErrFenced = driver.Errorf("a later holder raised the fence: %w", driver.ErrLost)

// ErrInDoubt says that the commit of a guarded transaction was sent, and no answer says what became of it. It was applied as a whole or
// not at all.
var ErrInDoubt = driver.Errorf("the outcome of the commit is unknown")

// ErrTransactionEnded says that a transaction has ended before it could be guarded: the function has ended it, or a statement in it that
// commits by itself.
var ErrTransactionEnded = errors.New("the guarded transaction had already ended, such as by a COMMIT in it")

// ErrNoFunction is the error for a function that is nil.
var ErrNoFunction error = driver.Invalid("fn", "nil", "a function")

// Hold is the part of a *[holdfast.Hold] that a guard uses.
//
// [holdfast.Hold]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Hold
type Hold interface {
	Lease() driver.Lease
	Context() context.Context
	Err() error
}

// Unnoticed returns a hold that goes on until ctx ends: that of a process which was paused, and has not noticed the end of its lease.
// With it [driver.Description.WriteGuarded] and tests try whether the store itself refuses the write.
func Unnoticed(ctx context.Context, lease driver.Lease) Hold { return unnoticed{ctx, lease} }

type unnoticed struct {
	ctx   context.Context
	lease driver.Lease
}

func (u unnoticed) Lease() driver.Lease      { return u.lease }
func (u unnoticed) Context() context.Context { return u.ctx }
func (u unnoticed) Err() error               { return context.Cause(u.ctx) }

// Kind is a kind of guard of one driver.
type Kind struct {
	Backend string // as in the driver's Info
	Method  string // "guard" or "fence", as in [telemetry.Operation]
	Limits  driver.Limits
}

// Error returns an error of the guard of a lock; nil for nil.
func (k Kind) Error(name string, err error) error {
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: k.Method, Backend: k.Backend, Name: name, Err: err}
}

// Lease returns the lease of a hold that a caller gave, if it can be one of this driver. Otherwise the error
// matches [driver.ErrInvalid].
func (k Kind) Lease(hold Hold) (driver.Lease, error) {
	if hold == nil {
		return driver.Lease{}, driver.Invalid("hold", "nil", "a hold")
	}
	lease := hold.Lease()
	if err := CheckToken(lease.Token); err != nil {
		return lease, err
	}
	if lease.Mode != driver.Exclusive { // readers that write would not exclude each other
		return lease, driver.Invalid("Mode", lease.Mode.String(), driver.Exclusive.String()+" for guarded writes")
	}
	return lease, driver.ValidateName(lease.Name, k.Limits)
}

// CheckToken returns an error that matches [driver.ErrInvalid] unless token can be that of a lease.
func CheckToken(token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return driver.Invalid("token", strconv.FormatUint(token, 10), "the token of a lease")
	}
	return nil
}

// LockerOf returns the driver's Locker that locks is or wraps.
func LockerOf[L any](locks driver.Locker) (*L, error) {
	for {
		outer, wraps := locks.(interface{ Unwrap() driver.Locker })
		if !wraps {
			break
		}
		locks = outer.Unwrap()
	}
	locker, ok := any(locks).(*L)
	if !ok || locker == nil {
		return nil, driver.Invalid("locks", fmt.Sprintf("of type %T", locks), "a *Locker of this driver")
	}
	return locker, nil
}

// Run calls do with the hold's lease and a context that descends from ctx and also ends with the hold. If it has ended, do
// still runs: its first request fails. It reports to the hook of the hold's Client, and returns the error of do
//
//   - as it is, if [FromFunction] marked it and ctx and the hold go on
//   - with the reason of the context's end, if it has ended: driver.ErrLost, or the cause of the hold's context. [ErrInDoubt]
//     stays without it, because it says more. The loss of another lock, which the function may return, too, is included as text only
//   - otherwise with the operation, the lock and the backend
func (k Kind) Run(ctx context.Context, hold Hold, do func(ctx context.Context, lease driver.Lease) error) error {
	lease, err := k.Lease(hold)
	if err != nil {
		return k.Error(lease.Name, err)
	}
	ctx, cancel := endWithHold(ctx, hold)
	defer cancel()
	op := telemetry.Operation{Kind: telemetry.Guard, Name: lease.Name, Token: lease.Token, Backend: k.Backend, Method: k.Method}
	return telemetry.Measure(ctx, hold.Context(), op, func(ctx context.Context) error {
		err := do(ctx, lease)
		var fromFn *functionError
		marked := errors.As(err, &fromFn)
		if marked {
			err = fromFn.err
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && !errors.Is(err, ErrInDoubt):
			err = withEndReason(ctx, hold, err, marked)
		case marked:
			return err
		}
		return k.Error(lease.Name, err)
	})
}

// endWithHold returns a context that ends when ctx or the hold does.
func endWithHold(ctx context.Context, hold Hold) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	held := hold.Context()
	end := func() { cancel(context.Cause(held)) }
	if held.Err() != nil {
		end() // at once: the function must not begin
	}
	stop := context.AfterFunc(held, end)
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// FromFunction marks an error that the caller's function returned.
func FromFunction(err error) error { return &functionError{err} }

// IsFromFunction reports whether the caller's function returned the error.
func IsFromFunction(err error) bool {
	var fromFn *functionError
	return errors.As(err, &fromFn)
}

type functionError struct{ err error }

func (e *functionError) Error() string { return e.err.Error() }
func (e *functionError) Unwrap() error { return e.err }

// withEndReason adds the reason why ctx ended, if err does not have it. If the hold has ended,
// the error matches the hold's cause, such as [driver.ErrLost]. The caller's context may
// descend from another hold, whose end is no outcome of this one.
func withEndReason(ctx context.Context, hold Hold, err error, fromFn bool) error {
	cause := context.Cause(ctx)
	// Promise 4: the loss of another lock is no loss of this one. It is included as text.
	another := driver.OutcomeKnown(cause) && !errors.Is(context.Cause(hold.Context()), cause)
	switch {
	case another && fromFn && driver.OutcomeKnown(err): // the function may return the loss of the other lock
		return driver.Errorf("%w: %s", ctx.Err(), driver.ErrorText(err))
	case another:
		return driver.Errorf("%w (%s)", err, driver.ErrorText(cause))
	case errors.Is(err, cause):
		return err
	}
	return driver.Errorf("%w (%w)", cause, err)
}
