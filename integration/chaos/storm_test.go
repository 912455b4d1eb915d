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
	"github.com/holdfast-go/holdfast/integration/history"
)

// disturbance is something that is done to the system for a while.
type disturbance struct {
	name        string
	begin       beginning
	least, most time.Duration // how long it lasts
}

// beginning does it, and returns how it ends.
type beginning = func(ctx context.Context, r *rand.Rand) (ending, error)

// ending undoes it; nil where it ends by itself.
type ending = func(ctx context.Context) error

// between is what begins and ends with two functions that need to know nothing.
func between(begin, end func(ctx context.Context) error) beginning {
	return func(ctx context.Context, _ *rand.Rand) (ending, error) { return end, begin(ctx) }
}

// repair is how long undoing a fault may take.
const repair = 90 * time.Second

// storm has one fault after the other come, with pauses of up to gap between them,
// until ctx ends. It leaves nothing undone. One that cannot be had here is left out
// from then on; one that fails, as a step-down may, is told and not counted.
type storm struct {
	t      *testing.T
	rec    *history.Recorder
	random *rand.Rand
	gap    time.Duration
	faults []disturbance
}

func (s *storm) rage(ctx context.Context) {
	for s.wait(ctx, s.within(s.gap/4, s.gap)) && len(s.faults) > 0 {
		i := s.random.IntN(len(s.faults))
		err := s.one(ctx, s.faults[i])
		switch {
		case errors.Is(err, env.ErrUnsupported):
			s.t.Log(err)
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		case err != nil:
			s.t.Log(err)
		}
	}
}

func (s *storm) one(ctx context.Context, d disturbance) error {
	lasts, r := s.within(d.least, d.most), rand.New(rand.NewPCG(s.random.Uint64(), 0))
	at := history.Now()
	undo, err := d.begin(ctx, r)
	if errors.Is(err, env.ErrUnsupported) {
		return err
	}
	if err != nil {
		if undo != nil {
			s.undo(ctx, d.name, undo, s.t.Log) // there may be nothing to undo
		}
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if undo != nil {
		defer s.undo(ctx, d.name, undo, s.t.Error)
	}
	s.wait(ctx, lasts)
	s.rec.Record(history.Line{Kind: history.Fault, At: at, Until: history.Now(), Note: d.name})
	return nil
}

func (s *storm) undo(ctx context.Context, name string, undo ending, tell func(...any)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repair)
	defer cancel()
	if err := undo(ctx); err != nil {
		tell(fmt.Errorf("undo %q: %w", name, err))
	}
}

func (s *storm) within(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// wait reports whether ctx has not ended meanwhile.
func (s *storm) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
