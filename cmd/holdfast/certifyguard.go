package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/lockertest"
)

// examineGuard lets a holder write that has not noticed the end of its lease, as lockertest does with calls of a Locker.
func (c *certificate) examineGuard(ctx context.Context, backend string, open func(context.Context) (driver.Locker, error)) error {
	found := lockertest.Outcome{Clause: "guard/late-write", Says: "The driver's guard or fence refuses the write of a holder that has not " +
		"noticed the end of its lease, once a later holder has written."}
	about, _ := driver.Describe(backend)
	if about.WriteGuarded == nil {
		found.LeftOut = []string{"the driver has no guard and no fence"}
		c.add(found)
		return nil
	}
	l, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
	var late error
	var before string
	err = untilAnswered(ctx, func(try int) (err error) {
		late, before, err = writeLate(ctx, l, about.WriteGuarded, fmt.Sprint("guarded-", try))
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errors.ErrUnsupported):
		found.LeftOut = []string{"needs a server with transactions"}
	case !driver.OutcomeKnown(err):
		return fmt.Errorf("the guard could not be examined: %w", err)
	case err != nil:
		found.Failures = []string{"a call of the holder failed: " + driver.ErrorText(err)}
	case !errors.Is(late, driver.ErrLost):
		found.Failures = []string{fmt.Sprintf("the late write was not refused; its error is %v", late)}
	case before != "second":
		found.Failures = []string{fmt.Sprintf("the second holder had written %q, and then found %q", "second", before)}
	}
	c.add(found)
	return nil
}

// guardedTTL is that of the holders in writeLate: more than their calls take.
const guardedTTL = time.Minute

// writeLate lets two holders of a lock that nobody has used write, the second one again after the first, which is late. It returns the
// answer to the late write, and what the second one found at last.
func writeLate(
	ctx context.Context, l driver.Locker, write func(context.Context, driver.Locker, driver.Lease, string) (string, error), name string,
) (late error, before string, err error) {
	ttl := settings.ClampTTL(guardedTTL, l.Info().Limits)
	hold := func(value string) (driver.Lease, error) {
		lease, err := l.TryAcquire(ctx, driver.Request{Name: name, Owner: "certify", ID: driver.NewLeaseID(engine.NewID()), TTL: ttl})
		if err == nil {
			_, err = write(ctx, l, lease, value)
		}
		return lease, err
	}
	first, err := hold("first")
	if err != nil {
		return nil, "", err
	}
	if err := l.Release(ctx, first); err != nil {
		return nil, "", err
	}
	second, err := hold("second")
	if err != nil {
		return nil, "", err
	}
	if _, late = write(ctx, l, first, "late"); !driver.OutcomeKnown(late) {
		return nil, "", late
	}
	before, err = write(ctx, l, second, "third")
	return late, before, err
}
