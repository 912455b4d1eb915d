package otelholdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

// rig is a Telemetry whose measurements can be read.
type rig struct {
	*otelholdfast.Telemetry
	reader *sdk.ManualReader
	spans  *tracetest.SpanRecorder
}

func newRig(t *testing.T, opts ...otelholdfast.Option) *rig {
	t.Helper()
	r := &rig{reader: sdk.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	opts = append([]otelholdfast.Option{
		otelholdfast.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(r.reader))),
		otelholdfast.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(r.spans))),
	}, opts...)
	var err error
	if r.Telemetry, err = otelholdfast.New(opts...); err != nil {
		t.Fatal(err)
	}
	return r
}

// client makes a client on the bubble's time.
func (r *rig) client(t *testing.T, l holdfast.Locker, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	start := time.Now()
	opts = append(opts, r.Option(), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
	c, err := holdfast.New(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

func byName(name string) string { return name }

// collect returns all instruments.
func (r *rig) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	all := map[string]metricdata.Metrics{}
	for _, scope := range data.ScopeMetrics {
		if scope.Scope.Name != otelholdfast.Scope {
			t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

// points returns the values of an instrument by attributes: of a histogram "count sum".
func points(m metricdata.Metrics) map[string]string {
	out := map[string]string{}
	text := func(s attribute.Set) string { return s.Encoded(attribute.DefaultEncoder()) }
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			out[text(p.Attributes)] = fmt.Sprint(p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			out[text(p.Attributes)] = fmt.Sprintf("%d %g", p.Count, p.Sum)
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			out[text(p.Attributes)] = fmt.Sprintf("%d %d", p.Count, p.Sum)
		}
	}
	return out
}

// expect compares the values of instruments.
func (r *rig) expect(t *testing.T, want map[string]map[string]string) {
	t.Helper()
	all := r.collect(t)
	for name, values := range want {
		if got := points(all[name]); !maps.Equal(got, values) {
			t.Errorf("%s: got %v, want %v", name, got, values)
		}
	}
}
