// Package otelholdfast reports what a Client of package holdfast does to OpenTelemetry: metrics, and spans
// for acquisitions, holds, releases and guarded writes.
//
//	telemetry, err := otelholdfast.New(otelholdfast.WithLockName(func(name string) string { return name }))
//	…
//	client, err := holdfast.Open(ctx, url, telemetry.Option())
//
// docs/metrics.md lists the instruments. Durations are in seconds. No measurement has the name of a lock
// unless [WithLockName] is given, since each name makes further time series.
package otelholdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/holdfast-go/holdfast/otelholdfast"

// Telemetry is a [telemetry.Hook] for OpenTelemetry. Several Clients may share one.
type Telemetry struct {
	instruments
	tracer   trace.Tracer
	lockName func(string) string
	leads    func(string) bool
	locks    sync.Map // lock attribute → *lock
}

// Option configures [New].
type Option func(*config)

type config struct {
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
	lockName func(string) string
	leads    func(string) bool
	nilValue bool
}

// WithMeterProvider sets where the metrics go. The default is otel.GetMeterProvider().
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters, c.nilValue = p, c.nilValue || p == nil }
}

// WithTracerProvider sets where the spans go. The default is otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers, c.nilValue = p, c.nilValue || p == nil }
}

// WithLockName gives measurements the attribute "lock" with what fn returns for a lock's name, and none
// if that is empty. Return few different texts: the name itself if a program has few locks, or the part of
// it that names the purpose. fn is called for each operation; it must return at once and must not panic.
//
// The alerts for a missing leader and for two leaders count by this attribute, so give runners one.
func WithLockName(fn func(name string) string) Option {
	return func(c *config) { c.lockName, c.nilValue = fn, c.nilValue || fn == nil }
}

// WithLeaders makes a lock for whose name fn returns true count as leadership, although Do or Lock holds it
// and no LeaderAwareRunner. fn must return the same for a name each time. A lock with slots counts in no case.
func WithLeaders(fn func(name string) bool) Option {
	return func(c *config) { c.leads, c.nilValue = fn, c.nilValue || fn == nil }
}

// New makes the instruments. The error is an *[holdfast.InvalidError] if an option is nil, or else that of
// the MeterProvider.
func New(opts ...Option) (*Telemetry, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider(),
		lockName: func(string) string { return "" }, leads: func(string) bool { return false }}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "an Option")
		}
		o(&c)
	}
	if c.nilValue {
		return nil, driver.Invalid("option", "nil", "an option with a value")
	}
	t := &Telemetry{tracer: c.tracers.Tracer(Scope), lockName: c.lockName, leads: c.leads}
	return t, t.create(c.meters.Meter(Scope))
}

// Option makes a Client use the Telemetry. It is for [holdfast.New] and [holdfast.Open].
func (t *Telemetry) Option() holdfast.ClientOption { return holdfast.WithHook(t) }

// lock has what the measurements of a lock have in common.
type lock struct {
	attributes attribute.Set
	set        metric.MeasurementOption // these attributes
	alias      metric.MeasurementOption // those of leader_election_master_status
}

// with returns the lock's attributes and one more.
func (l *lock) with(key, value string) metric.MeasurementOption {
	return metric.WithAttributes(append(l.attributes.ToSlice(), attribute.String(key, value))...)
}

// lockOf returns the lock of a name. For a new one it makes the counters begin at zero, because an increase
// from nothing to one is invisible.
func (t *Telemetry) lockOf(ctx context.Context, name string) *lock {
	text := ""
	if name != "" {
		text = t.lockName(name)
	}
	if l, ok := t.locks.Load(text); ok {
		return l.(*lock) //nolint:forcetypeassert // nothing else is stored
	}
	l := &lock{alias: metric.WithAttributeSet(*attribute.EmptySet())}
	if text != "" {
		l.attributes = attribute.NewSet(attribute.String("lock", text))
		l.alias = metric.WithAttributes(attribute.String("name", text))
	}
	l.set = metric.WithAttributeSet(l.attributes)
	if known, loaded := t.locks.LoadOrStore(text, l); loaded {
		return known.(*lock) //nolint:forcetypeassert // nothing else is stored
	}
	t.losses.Add(ctx, 0, l.set)
	t.overruns.Add(ctx, 0, l.set)
	return l
}

// Begin implements [telemetry.Hook].
func (t *Telemetry) Begin(ctx context.Context, op telemetry.Operation) context.Context {
	if op.Role == telemetry.Internal {
		return ctx
	}
	switch op.Kind {
	case telemetry.Acquire:
		l := t.lockOf(ctx, op.Name)
		t.waiting.Add(ctx, 1, l.set)
		if t.isLeader(op) {
			t.addLeader(ctx, l, 0) // a candidate has a value, too
		}
		return t.span(ctx, "holdfast.acquire", op)
	case telemetry.Hold:
		t.holds(ctx, op, 1)
		return t.span(ctx, "holdfast.hold", op)
	case telemetry.Release:
		return t.span(ctx, "holdfast.release", op)
	case telemetry.Guard:
		return t.span(ctx, "holdfast.guard", op)
	default:
		return ctx
	}
}

// holds changes the number of locks that are held.
func (t *Telemetry) holds(ctx context.Context, op telemetry.Operation, n int64) {
	l := t.lockOf(ctx, op.Name)
	t.held.Add(ctx, n, l.set)
	if t.isLeader(op) {
		t.addLeader(ctx, l, n)
	}
	if op.Role == telemetry.Partition {
		t.partitions.Add(ctx, n, l.set)
	}
}

// isLeader reports whether the lock has one holder, who leads. In a pool a slot may be free, and several leaders
// are no fault.
func (t *Telemetry) isLeader(op telemetry.Operation) bool {
	return op.Slots <= 1 && (op.Role == telemetry.Leader || op.Role == telemetry.Plain && t.leads(op.Name))
}

// addLeader changes whether this instance leads: by 1, -1 or 0.
func (t *Telemetry) addLeader(ctx context.Context, l *lock, n int64) {
	t.leader.Add(ctx, n, l.set)
	t.masterStatus.Add(ctx, n, l.alias)
	t.transitions.Add(ctx, max(n, 0), l.set)
}

// span begins a span.
func (t *Telemetry) span(ctx context.Context, name string, op telemetry.Operation) context.Context {
	ctx, span := t.tracer.Start(ctx, name)
	if !span.IsRecording() {
		return ctx
	}
	if op.Name != "" {
		span.SetAttributes(attribute.String("lock", op.Name))
	}
	if op.Token != 0 {
		span.SetAttributes(attribute.Int64("token", int64(op.Token))) //nolint:gosec // for people to read
	}
	if op.Backend != "" {
		span.SetAttributes(attribute.String("backend", op.Backend))
	}
	return ctx
}

// End implements [telemetry.Hook].
func (t *Telemetry) End(ctx context.Context, op telemetry.Operation, took time.Duration, err error) {
	if op.Role == telemetry.Internal {
		return
	}
	seconds := took.Seconds()
	switch op.Kind {
	case telemetry.Acquire:
		l, result := t.lockOf(ctx, op.Name), acquireResult(ctx, err)
		t.waiting.Add(ctx, -1, l.set)
		t.acquireDuration.Record(ctx, seconds, l.with("result", result))
		span := trace.SpanFromContext(ctx)
		span.SetAttributes(attribute.String("result", result))
		if result != "error" {
			err = nil
		}
		endSpan(span, err)
	case telemetry.Hold:
		if err == nil { // else Lost has counted it
			t.ended(ctx, op, took, "released")
		}
		endSpan(trace.SpanFromContext(ctx), err)
	case telemetry.Release:
		endSpan(trace.SpanFromContext(ctx), err)
	case telemetry.Guard:
		if errors.Is(err, driver.ErrLost) {
			t.fenceRejections.Add(ctx, 1, metric.WithAttributes(attribute.String("backend", op.Backend)))
		}
		endSpan(trace.SpanFromContext(ctx), err)
	case telemetry.Call:
		backend := attribute.String("backend", op.Backend)
		attributes := []attribute.KeyValue{attribute.String("operation", op.Method), backend}
		if typ := errorType(err); typ != "" {
			attributes = append(attributes, attribute.String("error.type", typ))
		}
		t.operationDuration.Record(ctx, seconds, metric.WithAttributes(attributes...))
		if op.Method == "renew" {
			t.batchSize.Record(ctx, int64(op.Locks), metric.WithAttributes(backend))
		}
	}
}

// endSpan ends a span that failed if err is not nil.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// ended counts a hold that has ended.
func (t *Telemetry) ended(ctx context.Context, op telemetry.Operation, held time.Duration, end string) {
	t.holds(ctx, op, -1)
	t.holdDuration.Record(ctx, held.Seconds(), t.lockOf(ctx, op.Name).with("end", end))
}

// Lost implements [telemetry.Hook].
func (t *Telemetry) Lost(ctx context.Context, op telemetry.Operation, held time.Duration, cause error) {
	if op.Role == telemetry.Internal {
		return
	}
	end := "given_up"
	if errors.Is(cause, driver.ErrLost) {
		end = "lost"
		t.losses.Add(ctx, 1, t.lockOf(ctx, op.Name).set)
	}
	t.ended(ctx, op, held, end)
	trace.SpanFromContext(ctx).AddEvent(end, trace.WithAttributes(attribute.String("cause", cause.Error())))
}

// Overrun implements [telemetry.Hook].
func (t *Telemetry) Overrun(ctx context.Context, op telemetry.Operation) {
	if op.Role == telemetry.Internal {
		return
	}
	t.overruns.Add(ctx, 1, t.lockOf(ctx, op.Name).set)
	trace.SpanFromContext(ctx).AddEvent("overrun")
}

// Renewed implements [telemetry.Hook].
func (t *Telemetry) Renewed(ctx context.Context, op telemetry.Operation, left time.Duration) {
	if op.Role != telemetry.Internal {
		t.renewalMargin.Record(ctx, left.Seconds(), t.lockOf(ctx, op.Name).set)
	}
}

// Dropped implements [telemetry.Hook].
func (t *Telemetry) Dropped() { t.eventsDropped.Add(context.Background(), 1) }

// acquireResult is the attribute "result". ctx is that of the acquisition: if it has ended, the caller
// has given up, whatever the error.
func acquireResult(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "acquired"
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, driver.ErrHeld):
		return "held"
	case errors.Is(err, driver.ErrClosed):
		return "closed"
	default:
		return "error"
	}
}

// errorType is the attribute "error.type" of a call; empty if it succeeded.
func errorType(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, driver.ErrHeld):
		return "held"
	case errors.Is(err, driver.ErrLost):
		return "lost"
	case errors.Is(err, driver.ErrConflict):
		return "conflict"
	case errors.Is(err, driver.ErrInvalid):
		return "invalid"
	case errors.Is(err, driver.ErrClosed):
		return "closed"
	case errors.Is(err, driver.ErrDenied):
		return "denied"
	case errors.Is(err, driver.ErrDamaged):
		return "damaged"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "other"
	}
}
