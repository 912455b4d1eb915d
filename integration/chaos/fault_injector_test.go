//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/history"
)

// faultKind is a fault that is injected for a while.
type faultKind struct {
	name                     string
	inject                   injectFunc
	minDuration, maxDuration time.Duration // of the fault
}

// injectFunc injects a fault and returns the function that undoes it.
type injectFunc = func(ctx context.Context, r *rand.Rand) (undoFunc, error)

// undoFunc undoes a fault. It is nil if the fault ends by itself.
type undoFunc = func(ctx context.Context) error

// injectAndUndo makes an injectFunc of two functions that need no state.
func injectAndUndo(inject, undo func(ctx context.Context) error) injectFunc {
	return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) { return undo, inject(ctx) }
}

// undoTimeout is how long undoing a fault may take.
const undoTimeout = 90 * time.Second

// faultInjector injects one fault after another, at intervals of up to maxInterval, until ctx
// ends. It undoes each fault. A fault that the environment does not support is not tried again. A
// fault that cannot be injected, such as a refused step-down, is logged and not counted.
type faultInjector struct {
	t           *testing.T
	rec         *history.Recorder
	random      *rand.Rand
	maxInterval time.Duration
	faults      []faultKind
}

func (f *faultInjector) run(ctx context.Context) {
	for f.wait(ctx, f.randomDuration(f.maxInterval/4, f.maxInterval)) && len(f.faults) > 0 {
		i := f.random.IntN(len(f.faults))
		err := f.injectOne(ctx, f.faults[i])
		switch {
		case errors.Is(err, env.ErrUnsupported):
			f.t.Log(err)
			f.faults = append(f.faults[:i:i], f.faults[i+1:]...)
		case err != nil:
			f.t.Log(err)
		}
	}
}

func (f *faultInjector) injectOne(ctx context.Context, d faultKind) error {
	duration, r := f.randomDuration(d.minDuration, d.maxDuration), rand.New(rand.NewPCG(f.random.Uint64(), 0))
	at := history.Now()
	undo, err := d.inject(ctx, r)
	if errors.Is(err, env.ErrUnsupported) {
		return err
	}
	if err != nil {
		if undo != nil {
			f.undo(ctx, d.name, undo, f.t.Log) // there may be nothing to undo
		}
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if undo != nil {
		defer f.undo(ctx, d.name, undo, f.t.Error)
	}
	f.wait(ctx, duration)
	f.rec.Record(history.Line{Kind: history.Fault, At: at, Until: history.Now(), Note: d.name})
	return nil
}

func (f *faultInjector) undo(ctx context.Context, name string, undo undoFunc, report func(...any)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := undo(ctx); err != nil {
		report(fmt.Errorf("undo %q: %w", name, err))
	}
}

func (f *faultInjector) randomDuration(minDuration, maxDuration time.Duration) time.Duration {
	return minDuration + time.Duration(f.random.Int64N(int64(maxDuration-minDuration)+1))
}

// wait waits for d. It returns false if ctx ended first.
func (f *faultInjector) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
