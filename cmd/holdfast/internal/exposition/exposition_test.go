package exposition_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	otel "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exposition"
)

// What is written is what Prometheus's client library writes: the text was made with it.
func TestWrite(t *testing.T) {
	locks := exposition.Family{Name: "locks", Help: "Back\\slash and\nnew line.", Type: exposition.Gauge}
	locks.Add(1, "state", "held", "lock", "a\"b\\c\nd")
	locks.Add(1764368123456, "state", "free", "lock", "")
	locks.Add(2, "lock", "no UTF-8: \xff", "state", "held")
	wait := exposition.Family{Name: "a_wait_seconds", Help: "Waited.", Type: exposition.Histogram}
	wait.AddHistogram([]float64{.0025, 1, 604800}, []uint64{1, 0, 2, 3}, 1e6)
	none := exposition.Family{Name: "none", Type: exposition.Counter}
	var b strings.Builder
	if err := exposition.Write(&b, []exposition.Family{locks, none, wait}); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP a_wait_seconds Waited.
# TYPE a_wait_seconds histogram
a_wait_seconds_bucket{le="0.0025"} 1
a_wait_seconds_bucket{le="1"} 1
a_wait_seconds_bucket{le="604800"} 3
a_wait_seconds_bucket{le="+Inf"} 6
a_wait_seconds_sum 1e+06
a_wait_seconds_count 6
# HELP locks Back\\slash and\nnew line.
# TYPE locks gauge
locks{lock="",state="free"} 1.764368123456e+12
locks{lock="a\"b\\c\nd",state="held"} 1
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Each kind of instrument that otelholdfast has is written under its name in Prometheus.
func TestMeasured(t *testing.T) {
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	counter, err := meter.Int64Counter("jobs.done", otel.WithUnit("{job}"), otel.WithDescription("Done."))
	if err != nil {
		t.Fatal(err)
	}
	level, err := meter.Int64UpDownCounter("jobs.now")
	if err != nil {
		t.Fatal(err)
	}
	took, err := meter.Float64Histogram("took", otel.WithUnit("s"), otel.WithExplicitBucketBoundaries(.5))
	if err != nil {
		t.Fatal(err)
	}
	size, err := meter.Int64Histogram("size", otel.WithUnit("{job}"), otel.WithExplicitBucketBoundaries(2))
	if err != nil {
		t.Fatal(err)
	}
	with := otel.WithAttributes(attribute.String("error.type", "lost"))
	counter.Add(t.Context(), 2, with)
	level.Add(t.Context(), -1)
	took.Record(t.Context(), .25, with)
	size.Record(t.Context(), 3)
	families, err := exposition.Measured(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := exposition.Write(&b, families); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# HELP jobs_done_total Done.\n# TYPE jobs_done_total counter\njobs_done_total{error_type=\"lost\"} 2\n",
		"# TYPE jobs_now gauge\njobs_now -1\n", "# TYPE took_seconds histogram\ntook_seconds_bucket{error_type=\"lost\",le=\"0.5\"} 1\n",
		"took_seconds_sum{error_type=\"lost\"} 0.25\n", "# TYPE size histogram\nsize_bucket{le=\"2\"} 0\nsize_bucket{le=\"+Inf\"} 1\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
	gauge, err := meter.Int64Gauge("other.kind")
	if err != nil {
		t.Fatal(err)
	}
	gauge.Record(t.Context(), 1)
	if _, err := exposition.Measured(t.Context(), reader); err == nil || !strings.Contains(err.Error(), "other.kind") {
		t.Errorf("a kind that is not written: %v", err)
	}
}
