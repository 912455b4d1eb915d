package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

var _ Hold = (*holdfast.Hold)(nil)

var kind = Kind{Backend: "acme", Method: "guard", Limits: driver.Limits{MaxName: 100}}

// testHold is a hold that ends when the test says so.
type testHold struct {
	lease driver.Lease
	ctx   context.Context
}

func (h testHold) Lease() driver.Lease      { return h.lease }
func (h testHold) Context() context.Context { return h.ctx }
func (h testHold) Err() error               { return context.Cause(h.ctx) }

func held(ctx context.Context) testHold {
	return testHold{driver.Lease{Name: "job", Token: 7, ID: driver.NewLeaseID("secret"), TTL: time.Minute}, ctx}
}

// ended returns a context that ended with the cause.
func ended(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	end(cause)
	return ctx
}

// After the end of its hold a guard begins nothing.
func TestEndWithHold(t *testing.T) {
	for range 1000 {
		ctx, cancel := endWithHold(t.Context(), held(ended(t, driver.ErrLost)))
		if context.Cause(ctx) == nil {
			t.Fatal("it goes on after the end of the hold")
		}
		cancel()
	}
}

// The context ends with the hold, and after Run.
func TestContextEndsWithTheHold(t *testing.T) {
	ctx, lose := context.WithCancelCause(t.Context())
	var inside context.Context
	err := kind.Run(t.Context(), held(ctx), func(ctx context.Context, lease driver.Lease) error {
		inside = ctx
		if ctx.Err() != nil || lease.Token != 7 {
			t.Error(ctx.Err(), lease)
		}
		lose(driver.ErrLost)
		<-ctx.Done()
		return nil
	})
	if err != nil { // it was done all the same
		t.Error(err)
	}
	if err := kind.Run(t.Context(), held(t.Context()), func(ctx context.Context, _ driver.Lease) error {
		inside = ctx
		return nil
	}); err != nil || inside.Err() == nil {
		t.Error(err, inside.Err())
	}
}

func TestErrors(t *testing.T) {
	mine, other := errors.New("mine"), fmt.Errorf("the outer hold: %w", driver.ErrLost)
	for _, c := range []struct {
		name      string
		ctx, hold context.Context
		err       error
		is, not   error
		text      string
	}{
		{name: "the function's", err: FromFunction(mine), is: mine, text: "mine"},
		{name: "the store's", err: mine, is: mine, text: `holdfast: guard "job" on acme: mine`},
		{name: "the hold ended", hold: ended(t, driver.ErrLost), err: mine, is: driver.ErrLost, text: "mine"},
		{name: "the hold ended, the function's", hold: ended(t, driver.ErrLost), err: FromFunction(mine), is: driver.ErrLost, text: "mine"},
		{name: "the caller ended", ctx: ended(t, context.Canceled), err: mine, is: context.Canceled, not: driver.ErrLost, text: "mine"},
		{name: "another hold ended", ctx: ended(t, other), err: mine, is: mine, not: driver.ErrLost, text: "the outer hold"},
		{name: "another hold ended, which the function returns", ctx: ended(t, other), err: FromFunction(fmt.Errorf("step: %w", other)),
			is: context.Canceled, not: driver.ErrLost, text: "step: the outer hold"},
		{name: "another hold ended, whose loss the function returns", ctx: ended(t, other), err: FromFunction(driver.ErrLost),
			is: context.Canceled, not: driver.ErrLost, text: "lost"},
		{name: "another hold ended, the function's own", ctx: ended(t, other), err: FromFunction(mine), is: mine, not: driver.ErrLost},
		{name: "another hold ended, and the store refuses", ctx: ended(t, driver.ErrLost), err: driver.ErrLost, is: driver.ErrLost},
		{name: "in doubt", hold: ended(t, driver.ErrLost), err: ErrInDoubt, is: ErrInDoubt, not: driver.ErrLost},
		{name: "fenced", err: ErrFenced, is: driver.ErrLost},
	} {
		ctx, hold := c.ctx, c.hold
		if ctx == nil {
			ctx = t.Context()
		}
		if hold == nil {
			hold = t.Context()
		}
		err := kind.Run(ctx, held(hold), func(context.Context, driver.Lease) error { return c.err })
		switch {
		case !errors.Is(err, c.is), c.not != nil && errors.Is(err, c.not), !strings.Contains(err.Error(), c.text):
			t.Errorf("%s: %v", c.name, err)
		case IsFromFunction(err):
			t.Errorf("%s: the mark is left", c.name)
		case err.Error() != "mine" && !strings.HasPrefix(err.Error(), `holdfast: guard "job" on acme: `):
			t.Errorf("%s: %v does not name the operation", c.name, err)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, lease := range []driver.Lease{
		{Name: "job"}, {Name: "job", Token: 1 << 63}, {Token: 1}, {Name: strings.Repeat("n", 101), Token: 1},
	} {
		if err := kind.Run(t.Context(), testHold{lease, t.Context()}, nil); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v", lease, err)
		}
	}
	reader := held(t.Context())
	reader.lease.Mode = driver.Shared
	if err := kind.Run(t.Context(), reader, nil); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "shared") {
		t.Errorf("a reader: %v", err)
	}
	if err := kind.Run(t.Context(), nil, nil); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "hold") {
		t.Error(err)
	}
}

type locker struct{ driver.Locker }

type wrapping struct{ driver.Locker }

func (w wrapping) Unwrap() driver.Locker { return w.Locker }

func TestLockerOf(t *testing.T) {
	mine := &locker{}
	for _, l := range []driver.Locker{mine, wrapping{mine}, wrapping{wrapping{mine}}} {
		if found, err := LockerOf[locker](l); found != mine || err != nil {
			t.Errorf("%T: %v", l, err)
		}
	}
	for _, l := range []driver.Locker{nil, (*locker)(nil), wrapping{nil}, locker{}} {
		if _, err := LockerOf[locker](l); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%T: %v", l, err)
		}
	}
}

// hook records the operations that have ended.
type hook struct {
	telemetry.Ignore
	ops  []telemetry.Operation
	errs []error
}

func (h *hook) End(_ context.Context, op telemetry.Operation, _ time.Duration, err error) {
	h.ops, h.errs = append(h.ops, op), append(h.errs, err)
}

// Run reports to the hook of the hold, also a refusal.
func TestReportsToTheHook(t *testing.T) {
	h := &hook{}
	ctx, end := context.WithCancelCause(context.WithValue(t.Context(), telemetry.ContextKey{}, h))
	end(driver.ErrLost)
	err := kind.Run(t.Context(), held(ctx), func(ctx context.Context, _ driver.Lease) error { return ctx.Err() })
	want := telemetry.Operation{Kind: telemetry.Guard, Name: "job", Token: 7, Backend: "acme", Method: "guard"}
	if !errors.Is(err, driver.ErrLost) || len(h.ops) != 1 || h.ops[0] != want || !errors.Is(h.errs[0], driver.ErrLost) {
		t.Errorf("Run returned %v, the hook got %+v, %v", err, h.ops, h.errs)
	}
}
