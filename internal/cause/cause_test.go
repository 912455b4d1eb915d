package cause_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
)

var errOwn = errors.New("the caller's own cause")

// A cause of the caller's own is wrapped. That of another lock's end is included as text only.
func TestOf(t *testing.T) {
	for _, tc := range []struct {
		cause   error
		matches bool
	}{
		{nil, true},
		{errOwn, true},
		{context.DeadlineExceeded, true},
		{driver.Errorf("%q: %w", "other", driver.ErrLost), false},
		{driver.ErrHeld, false},
		{cause.ErrReleased, false},
		{cause.ErrSteppedDown, false},
		{cause.ErrShutdown, false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tc.cause)
		err := cause.Of(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v: %v does not match context.Canceled", tc.cause, err)
		}
		if tc.cause == nil {
			continue
		}
		if errors.Is(err, tc.cause) != tc.matches || !strings.Contains(err.Error(), driver.ErrorText(tc.cause)) {
			t.Errorf("cause %v: %v; want a match: %v", tc.cause, err, tc.matches)
		}
	}
}

func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, end := context.WithCancelCause(t.Context())
		joined, stop := cause.Join(t.Context(), other)
		defer stop()
		if joined.Err() != nil {
			t.Errorf("ended at once: %v", context.Cause(joined))
		}
		end(errOwn)
		synctest.Wait()
		if !errors.Is(context.Cause(joined), errOwn) {
			t.Errorf("the other has ended, and the cause is %v", context.Cause(joined))
		}

		parent, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		joined, stop = cause.Join(parent, context.Background())
		<-joined.Done()
		if !errors.Is(joined.Err(), context.DeadlineExceeded) {
			t.Errorf("the parent has ended, and the error is %v", joined.Err())
		}
		stop()

		joined, stop = cause.Join(t.Context(), context.Background())
		stop()
		if !errors.Is(joined.Err(), context.Canceled) {
			t.Error("not ended by stop")
		}
	})
}

func TestIsClosed(t *testing.T) {
	done := make(chan struct{})
	if cause.IsClosed(done) {
		t.Error("an open channel counts as closed")
	}
	close(done)
	if !cause.IsClosed(done) {
		t.Error("a closed channel counts as open")
	}
}
