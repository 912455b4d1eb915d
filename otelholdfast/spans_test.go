package otelholdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// ended returns the spans that have ended, by name, and fails if a name occurs twice.
func (r *rig) ended(t *testing.T) map[string]trace.ReadOnlySpan {
	t.Helper()
	out := map[string]trace.ReadOnlySpan{}
	for _, s := range r.spans.Ended() {
		if out[s.Name()] != nil {
			t.Errorf("two spans %q", s.Name())
		}
		out[s.Name()] = s
	}
	return out
}

func attributeOf(s trace.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.Emit()
		}
	}
	return ""
}

// Acquisition and hold are children of the caller's span, the function's own spans and the release are
// children of the hold.
func TestSpansOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tracer := trace.NewTracerProvider(trace.WithSpanProcessor(r.spans)).Tracer("program")
		ctx, caller := tracer.Start(t.Context(), "caller")
		err := r.client(t, memory.New()).Do(ctx, "job", func(ctx context.Context) error {
			_, work := tracer.Start(ctx, "work")
			time.Sleep(time.Second)
			work.End()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		caller.End()
		spans := r.ended(t)
		for name, parent := range map[string]string{
			"holdfast acquire": "caller", "holdfast hold": "caller", "work": "holdfast hold", "holdfast release": "holdfast hold",
		} {
			if s := spans[name]; s == nil || s.Parent().SpanID() != spans[parent].SpanContext().SpanID() {
				t.Errorf("%s is no child of %s", name, parent)
			} else if s.Status().Code != codes.Unset {
				t.Errorf("%s has the status %v", name, s.Status())
			}
		}
		if hold := spans["holdfast hold"]; attributeOf(hold, "lock") != "job" || attributeOf(hold, "token") == "" {
			t.Errorf("attributes: %v", hold.Attributes())
		}
		if got := attributeOf(spans["holdfast acquire"], "result"); got != "acquired" {
			t.Errorf("result %q", got)
		}
	})
}

// A loss and an overrun are events of the hold's span, which ends with the release.
func TestSpanOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := time.Now()
		err := r.client(t, unrenewable{memory.New()}).Do(t.Context(), "job", func(context.Context) error {
			time.Sleep(40 * time.Second)
			return nil
		})
		if !errors.Is(err, holdfast.ErrLost) {
			t.Error(err)
		}
		hold := r.ended(t)["holdfast hold"]
		events := hold.Events()
		if len(events) != 2 || events[0].Name != "lost" || events[0].Time.Sub(start) != 25*time.Second || events[1].Name != "overrun" {
			t.Errorf("events: %v", events)
		}
		if hold.Status().Code != codes.Error || hold.EndTime().Sub(start) != 40*time.Second {
			t.Errorf("status %v, ended after %s", hold.Status(), hold.EndTime().Sub(start))
		}
	})
}

// A refusal is the result of an acquisition, not its failure.
func TestSpanOfARefusal(t *testing.T) {
	r, store := newRig(t), memory.NewStore()
	other, err := holdfast.New(store.Locker())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Shutdown(context.Background())
	h, err := other.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	if _, err := r.client(t, store.Locker()).TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
		t.Error(err)
	}
	s := r.ended(t)["holdfast acquire"]
	if attributeOf(s, "result") != "held" || s.Status().Code != codes.Unset {
		t.Errorf("%v, %v", s.Attributes(), s.Status())
	}
}

// A guard is a span in the caller's, with the hook of the hold.
func TestSpanOfAGuard(t *testing.T) {
	r := newRig(t)
	refused := errors.New("refused")
	err := r.client(t, memory.New()).Do(t.Context(), "job", func(ctx context.Context) error {
		op := telemetry.Operation{Kind: telemetry.Guard, Name: "job", Backend: "mongodb", Method: "guard"}
		return telemetry.Measure(ctx, ctx, op, func(ctx context.Context) error {
			oteltrace.SpanFromContext(ctx).SetAttributes(attribute.Bool("inside", true))
			return refused
		})
	})
	if !errors.Is(err, refused) {
		t.Error(err)
	}
	s := r.ended(t)["holdfast guard"]
	if s == nil || attributeOf(s, "inside") != "true" || attributeOf(s, "backend") != "mongodb" || s.Status().Code != codes.Error {
		t.Errorf("%v", s)
	}
}
