package baseline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// Both locks have one holder at a time, and are free after a release.
func TestBaselinesExclude(t *testing.T) {
	t.Parallel()
	pessimistic, err := NewPessimistic(t.Context(), mongotest.Collection(t), "job", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Lock{"plain": Plain{memory.New(), "job", time.Minute}, "pessimistic": pessimistic} {
		if got, err := l.Try(t.Context(), "a"); !got || err != nil {
			t.Fatalf("%s: the first try: %v, %v", name, got, err)
		}
		if got, err := l.Try(t.Context(), "b"); got || err != nil {
			t.Fatalf("%s: a try while it is held: %v, %v", name, got, err)
		}
		waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := Wait(waiting, l, "b", 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: waiting while it is held: %v", name, err)
		}
		if err := errors.Join(l.Release(t.Context(), "b"), l.Release(t.Context(), "a"),
			Wait(t.Context(), l, "b", 10*time.Millisecond)); err != nil {
			t.Errorf("%s: after the release: %v", name, err)
		}
	}
	if held, err := pessimistic.Renew(t.Context(), "b"); !held || err != nil {
		t.Errorf("a renewal: %v, %v", held, err)
	}
	if held, err := pessimistic.Renew(t.Context(), "a"); held || err != nil {
		t.Errorf("a renewal of a lock that another holder has: %v, %v", held, err)
	}
}

// The TTL index removes the document of a crashed holder.
func TestPessimisticExpires(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := NewPessimistic(ctx, mongotest.Collection(t), "job", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Try(ctx, "crashed"); !got || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	if err := Wait(ctx, l, "next", 100*time.Millisecond); err != nil {
		t.Error(err)
	}
}
