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

// fault is something that is done to the system for a while.
type fault struct {
	name string
	// begin does it and returns what undoes it.
	begin func(ctx context.Context, r *rand.Rand) (undo func(ctx context.Context) error, err error)
	// least and most are how long it lasts.
	least, most time.Duration
}

// lasting is a fault with two ends that need to know nothing.
func lasting(name string, least, most time.Duration, begin, end func(ctx context.Context) error) fault {
	return fault{name, func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) { return end, begin(ctx) }, least, most}
}

// repair is how long undoing a fault may take.
const repair = 90 * time.Second

// storm has one fault after the other come, with pauses of up to gap between them,
// until ctx ends. It leaves nothing undone. A fault that cannot be had here is left
// out from then on.
type storm struct {
	t      *testing.T
	rec    *history.Recorder
	random *rand.Rand
	gap    time.Duration
	faults []fault
}

func (s *storm) rage(ctx context.Context) {
	for s.wait(ctx, s.between(s.gap/4, s.gap)) && len(s.faults) > 0 {
		i := s.random.IntN(len(s.faults))
		err := s.one(ctx, s.faults[i])
		switch {
		case errors.Is(err, env.ErrUnsupported):
			s.t.Log(err)
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		case err != nil && ctx.Err() == nil:
			s.t.Error(err)
			return
		}
	}
}

func (s *storm) one(ctx context.Context, f fault) error {
	lasts, r := s.between(f.least, f.most), rand.New(rand.NewPCG(s.random.Uint64(), 0))
	undo, err := f.begin(ctx, r)
	if undo != nil && !errors.Is(err, env.ErrUnsupported) {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repair)
			defer cancel()
			if err := undo(ctx); err != nil {
				s.t.Errorf("undo %q: %v", f.name, err)
			}
		}()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	s.rec.Record(history.Line{Kind: history.Fault, Note: f.name})
	s.wait(ctx, lasts)
	return nil
}

func (s *storm) between(least, most time.Duration) time.Duration {
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
