package namedlock

import (
	"context"
	"time"
)

// Join returns the context of work that runs under a hold. It ends with the hold, with the
// hold's cause, and with the caller's context. It has the values of both, so that
// holdfast.TokenFromContext finds the hold's token.
func Join(hold, caller context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(hold)
	detach := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	return joined{ctx, caller}, func() { detach(); cancel(nil) }
}

type joined struct {
	context.Context // descends from the hold's
	caller          context.Context
}

// Deadline is the caller's: a hold has none.
func (j joined) Deadline() (time.Time, bool) { return j.caller.Deadline() }

// Value looks in the hold's context first.
func (j joined) Value(key any) any {
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.caller.Value(key)
}
