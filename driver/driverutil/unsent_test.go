package driverutil

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The mark of a request that was not sent reaches the OpError, and stays nowhere else: an error with it may be the cause of the end
// of another call's context.
func TestUnsent(t *testing.T) {
	refused := errors.New("refused")
	err := OpError("acquire", "mongodb", "n", Unsent(Unsent(refused)))
	if !driver.NotSent(err) || !errors.Is(err, refused) {
		t.Errorf("%v: not sent: %v", err, driver.NotSent(err))
	}
	for name, other := range map[string]error{
		"another call's":             err,
		"another call's, wrapped":    fmt.Errorf("%w (%w)", context.Canceled, err),
		"a mark that is wrapped":     fmt.Errorf("then: %w", Unsent(refused)),
		"no mark":                    refused,
		"a known outcome":            Unsent(driver.ErrClosed),
		"a refusal with its holder":  Unsent(&driver.HeldError{}),
		"the cause of another's end": errors.Unwrap(err),
	} {
		if got := OpError("renew", "mongodb", "m", other); driver.NotSent(got) {
			t.Errorf("%s: %v was not sent", name, got)
		}
	}
	if Unsent(nil) != nil || OpError("acquire", "mongodb", "n", nil) != nil {
		t.Error("an error although there is none")
	}
}

// A call whose context ended before it began has sent nothing. One that has begun may have.
func TestRunOfAnEndedContextSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := NewCalls()
	during := calls.Run(ctx, time.Minute, nil, func(ctx context.Context) error { cancel(); return ctx.Err() })
	before := calls.Run(ctx, time.Minute, nil, func(context.Context) error { return nil })
	if driver.NotSent(OpError("acquire", "b", "n", during)) || !driver.NotSent(OpError("acquire", "b", "n", before)) {
		t.Errorf("during: %v, before: %v", during, before)
	}
}
