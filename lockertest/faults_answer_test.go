package lockertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func answerFaults() []fault {
	return []fault{
		{
			name: "ErrHeld without a record", says: "ErrHeld without a *HeldError", caught: []string{"acquire/held", "acquire/one winner"},
			make: fails(func(name, _ string, err error) error {
				if errors.Is(err, driver.ErrHeld) {
					return opErr(name, driver.ErrHeld)
				}
				return err
			}),
		},
		{
			name: "held is an unknown outcome", says: "want a *HeldError", caught: []string{"acquire/held", "acquire/one winner"},
			make: fails(func(name, _ string, err error) error {
				if errors.Is(err, driver.ErrHeld) {
					return opErr(name, errors.New("duplicate key"))
				}
				return err
			}),
		},
		{
			name: "the HeldError says free", says: "says that the lock is free", caught: []string{"acquire/held"},
			make: fails(func(name, _ string, err error) error {
				if errors.Is(err, driver.ErrHeld) {
					return heldErr(driver.Record{Name: name, State: driver.StateFree})
				}
				return err
			}),
		},
		{
			name: "IDs in errors", says: "shows the lease ID: ", caught: []string{"acquire/held", "renew/stale", "release/stale"},
			make: func(w *fixture, f *faulty) {
				fails(func(name, id string, err error) error { return opErr(name, fmt.Errorf("for lease %s: %w", id, err)) })(w, f)
				f.release = func(ctx context.Context, l driver.Lease) error {
					if err := f.Locker.Release(ctx, l); err != nil {
						return err
					}
					if w.note("released "+l.ID.Reveal(), true) != nil {
						return opErr(l.Name, errors.New("no lease "+l.ID.Reveal()))
					}
					return nil
				}
			},
		},
		{
			name: "a secret in errors", says: "shows a secret: ", caught: []string{"acquire/held"},
			make: fails(func(name, _ string, err error) error {
				return opErr(name, fmt.Errorf("at db://me:pa55word@host: %w", err))
			}),
		},
		{
			name: "errors with the prefix of another", says: "has it nowhere else", caught: []string{"acquire/held", "name/invalid"},
			make: fails(func(name, _ string, err error) error { return opErr(name, fmt.Errorf("the server: %w", err)) }),
		},
		{
			name: "errors without operation", says: "no *OpError", caught: []string{"acquire/held", "renew/stale", "name/invalid"},
			make: fails(func(_, _ string, err error) error {
				var op *driver.OpError
				if errors.As(err, &op) {
					return op.Err
				}
				return err
			}),
		},
		{
			name: "errors name no backend", says: "want both", caught: []string{"acquire/held"},
			make: fails(func(name, _ string, err error) error {
				return &driver.OpError{Op: "try", Name: name, Err: errors.Unwrap(err)}
			}),
		},
		{
			name: "errors name another lock", says: "the OpError names lock", caught: []string{"acquire/held"},
			make: fails(func(_, _ string, err error) error { return opErr("another", errors.Unwrap(err)) }),
		},
		{
			name: "errors with two meanings", says: "means several things at once", caught: []string{"renew/stale"},
			make: fails(func(name, _ string, err error) error { return opErr(name, errors.Join(err, driver.ErrClosed)) }),
		},
		{
			name: "a loss that is also a timeout", says: "the outcome is unknown", caught: []string{"renew/stale"},
			make: fails(func(name, _ string, err error) error {
				return opErr(name, errors.Join(err, context.DeadlineExceeded))
			}),
		},
		{
			name: "invalid without a field", says: "names field and rule", caught: []string{"argument/TTL", "argument/ID"},
			make: fails(func(name, _ string, err error) error {
				if errors.Is(err, driver.ErrInvalid) {
					return opErr(name, driver.ErrInvalid)
				}
				return err
			}),
		},
		{
			name: "contexts are ignored", caught: []string{"context/ended before"},
			make: func(_ *fixture, f *faulty) {
				guard(f, func(ctx context.Context, _ string) (context.Context, error) { return context.WithoutCancel(ctx), nil })
			},
		},
		{
			name: "an error wraps the context's cause", caught: []string{"context/cause"},
			make: func(_ *fixture, f *faulty) {
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if ctx.Err() != nil {
						return opErr(l.Name, fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx)))
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "a request under way ends with the context's cause", says: "another lock's", caught: []string{"context/hanging backend",
				"context/ends during"},
			make: func(w *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					if ctx.Err() != nil { // it is not sent
						return ctx, opErr(name, ctx.Err())
					}
					err := w.wait(ctx, name)
					select {
					case <-time.After(2 * time.Millisecond):
					case <-ctx.Done():
					}
					if ctx.Err() != nil {
						err = opErr(name, context.Cause(ctx))
					}
					return ctx, err
				})
			},
		},
		{
			name: "a call goes on after its context has ended", says: "after its context had ended", caught: []string{"context/ends during"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if w.count("calls") == 1 {
						time.Sleep(1100 * time.Millisecond)
					}
					return f.Locker.TryAcquire(ctx, req)
				}
			},
		},
		{
			name: "a context's end is hidden", caught: []string{"context/ended before", "context/ends during"},
			make: func(_ *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					time.Sleep(time.Millisecond)
					// A context may end a little later than its deadline.
					if end, limited := ctx.Deadline(); ctx.Err() != nil || limited && time.Now().After(end) {
						return ctx, opErr(name, errors.New("it took too long"))
					}
					return ctx, nil
				})
			},
		},
		{
			name: "a call waits for a hanging backend", says: "after its context had ended", caught: []string{"context/hanging backend"},
			make: func(w *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					if w.noted("stalled "+name) != nil {
						time.Sleep(2200 * time.Millisecond)
					}
					return ctx, nil
				})
			},
		},
		{
			name: "a call has no time limit of its own", says: "it had not returned", caught: []string{"context/own limit"},
			make: func(w *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					if _, limited := ctx.Deadline(); limited {
						return ctx, w.wait(ctx, name)
					}
					return ctx, w.hang(name)
				})
			},
		},
		{
			name: "a call hangs until the backend answers", says: "had not returned", caught: []string{"context/hanging backend",
				"context/own limit"},
			make: func(w *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) { return ctx, w.hang(name) })
			},
		},
		{
			name: "a hanging backend counts as done", caught: []string{"context/own limit", "context/hanging backend"},
			make: func(w *fixture, f *faulty) {
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if answered := w.wait(ctx, l.Name) == nil; !answered {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "Close is ignored", says: "want ErrClosed", caught: []string{"close/ErrClosed", "close/while in use"},
			make: func(_ *fixture, f *faulty) { f.close = func(ctx context.Context) error { return nil } },
		},
		{
			name: "Close with a context that has ended is refused", caught: []string{"close/ended context"},
			make: func(_ *fixture, f *faulty) {
				f.close = func(ctx context.Context) error {
					if ctx.Err() != nil {
						return opErr("", ctx.Err())
					}
					return f.Locker.Close(ctx)
				}
			},
		},
		{
			name: "Close hangs until the backend answers", says: "Close had not returned", caught: []string{"close/hanging backend"},
			make: func(w *fixture, f *faulty) {
				var last string
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					last = req.Name
					return f.Locker.TryAcquire(ctx, req)
				}
				f.close = func(ctx context.Context) error {
					_ = w.hang(last)
					return f.Locker.Close(ctx)
				}
			},
		},
		{
			name: "Close waits for a hanging backend", says: "after its context had ended", caught: []string{"close/hanging backend"},
			make: func(w *fixture, f *faulty) {
				var last string
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					last = req.Name
					return f.Locker.TryAcquire(ctx, req)
				}
				f.close = func(ctx context.Context) error {
					if w.noted("stalled "+last) != nil {
						time.Sleep(2200 * time.Millisecond)
					}
					return f.Locker.Close(ctx)
				}
			},
		},
		{
			name: "the second Close is an error", caught: []string{"close/ErrClosed", "close/while in use"},
			make: func(_ *fixture, f *faulty) {
				var closed atomic.Bool
				f.close = func(ctx context.Context) error {
					if closed.Swap(true) {
						return opErr("", driver.ErrClosed)
					}
					return f.Locker.Close(ctx)
				}
			},
		},
		{
			name: "Close releases", caught: []string{"close/leases stay"},
			make: func(w *fixture, f *faulty) {
				var names []string
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					names = append(names, req.Name)
					return f.Locker.TryAcquire(ctx, req)
				}
				f.close = func(ctx context.Context) error {
					for _, name := range names {
						w.free(name)
					}
					return f.Locker.Close(ctx)
				}
			},
		},
		{
			name: "Close closes the store", caught: []string{"close/others unaffected", "close/leases stay"},
			make: func(w *fixture, f *faulty) {
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					if w.noted("closed") != nil {
						return ctx, opErr(name, driver.ErrClosed)
					}
					return ctx, nil
				})
				f.close = func(ctx context.Context) error { w.note("closed", true); return nil }
			},
		},
	}
}
