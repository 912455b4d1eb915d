// Package telemetry is the hook through which a Client reports what it does and how long that takes, for
// metrics and traces. Programs that use OpenTelemetry need only the module otelholdfast. For other systems,
// implement [Hook] and give it to the Client with holdfast.WithHook.
//
// Observers of events (holdfast.WithObserver) are for programs that act on what happens to a lock.
// They are notified later, on a goroutine of their own, and events can be dropped. A Hook is called
// for everything, at the moment at which it happens.
package telemetry

import (
	"context"
	"errors"
	"time"
)

// Hook is notified of the operations of a Client. Its methods are called several at a time, each call on a
// goroutine of its own. The work waits for the call, sometimes while the Client holds a mutex. So they must
// return at once, must not call the Client, and must not panic. A Client logs a panic, or a call that ends
// its goroutine with [runtime.Goexit], and goes on. It logs a call that takes longer than a second.
//
// Implementations embed [Ignore], so that a method that is added later does not break them.
type Hook interface {
	// Begin is called before an operation, which continues with the context that Begin returns. It must
	// descend from ctx.
	Begin(ctx context.Context, op Operation) context.Context
	// End is called after the operation, with the context that Begin returned and the same op. took is
	// elapsed time. err is the operation's error; for a Hold it is nil unless Lost was called. A Hold ends
	// when its release begins: another may hold the lock before the release has been answered.
	End(ctx context.Context, op Operation, took time.Duration, err error)
	// Lost is called when a hold ends without a release, with the context and op of its Begin. held is how
	// long it lasted. The work may still run: End is called when the release begins, and never if the
	// program does not release it.
	Lost(ctx context.Context, op Operation, held time.Duration, cause error)
	// Overrun is called when work still runs under a lost hold and another may be granted the lock.
	Overrun(ctx context.Context, op Operation)
	// Renewed is called after each successful renewal of a hold. left is the time that was left until
	// the hold would have been lost.
	Renewed(ctx context.Context, op Operation, left time.Duration)
	// Dropped is called when an event is dropped because an observer is too slow.
	Dropped()
}

// Kind is a kind of operation. More may be added: a Hook ignores those that it does not know.
type Kind uint8

// The kinds of operations.
const (
	// Acquire is one caller's wait for a lock, or its one attempt. For a name of a LeaseManager it is the
	// whole campaign, from Add or a loss until the grant.
	Acquire Kind = iota + 1
	// Hold is a lock that is held, from the grant until the release begins.
	Hold
	// Release is the release of a hold, with its retries.
	Release
	// Guard is a write that a driver's guard or fence checks: Guard.Do of the driver for MongoDB,
	// NewFence of that for Azure Blob Storage. Its error matches driver.ErrLost if the write was refused.
	Guard
	// Call is one call of the backend.
	Call
)

// Role is what a lock is used for.
type Role uint8

// The roles of locks.
const (
	Plain     Role = iota // Do, Lock and their Try forms
	Leader                // LeaderAwareRunner
	Managed               // LeaseManager
	Partition             // Partitions: the lock of a partition
	Internal              // Partitions: the locks by which instances find each other
)

// Operation describes an operation. Fields may be added.
type Operation struct {
	Kind Kind
	// Name of the lock, or of its slot's record. It is empty for calls that concern several locks.
	Name string
	// Token is that of the hold; 0 for Acquire and Call.
	Token uint64
	Role  Role
	// Slots is how many holders the lock may have at once (holdfast.WithSlots), for Acquire, Hold and Release.
	Slots int
	// Backend and Method are set for Call and Guard: what the driver calls its backend, such as
	// "mongodb", and one of acquire, renew, release, inspect, break, break_now, read_data,
	// write_data, guard and fence.
	Backend, Method string
	// Locks is how many locks a Call concerns.
	Locks int
}

// Ignore is a Hook that does nothing.
type Ignore struct{}

// Begin returns ctx.
func (Ignore) Begin(ctx context.Context, _ Operation) context.Context { return ctx }

// End does nothing.
func (Ignore) End(context.Context, Operation, time.Duration, error) {}

// Lost does nothing.
func (Ignore) Lost(context.Context, Operation, time.Duration, error) {}

// Overrun does nothing.
func (Ignore) Overrun(context.Context, Operation) {}

// Renewed does nothing.
func (Ignore) Renewed(context.Context, Operation, time.Duration) {}

// Dropped does nothing.
func (Ignore) Dropped() {}

// ContextKey is the key under which the contexts of holds have their Client's Hook; see [FromContext].
type ContextKey struct{}

// FromContext returns the Hook of the Client whose hold ctx descends from. Without one it returns a Hook
// that does nothing. Drivers use it for what programs call directly, such as a guard.
func FromContext(ctx context.Context) Hook {
	if h, ok := ctx.Value(ContextKey{}).(Hook); ok {
		return h
	}
	return Ignore{}
}

// Measure calls fn and reports it as an operation to the Hook of the hold's context held.
func Measure(ctx, held context.Context, op Operation, fn func(ctx context.Context) error) error {
	hook := FromContext(held)
	ctx, start, err := hook.Begin(ctx, op), time.Now(), errPanicked
	defer func() { hook.End(ctx, op, time.Since(start), err) }()
	err = fn(ctx)
	return err
}

// errPanicked is the outcome of an operation whose function did not return. No other error wraps it.
var errPanicked = errors.New("the function panicked")
