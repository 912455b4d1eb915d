package exposition

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Measured returns what the instruments of OpenTelemetry have measured, under the names that Prometheus gives them.
func Measured(ctx context.Context, reader *metric.ManualReader) ([]Family, error) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return nil, err
	}
	var families []Family
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			f := Family{Name: strings.ReplaceAll(m.Name, ".", "_"), Help: m.Description}
			if m.Unit == "s" {
				f.Name += "_seconds"
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				f.Type = Gauge
				if data.IsMonotonic {
					f.Name, f.Type = f.Name+"_total", Counter
				}
				for _, p := range data.DataPoints {
					f.Add(float64(p.Value), labelsOf(p.Attributes)...)
				}
			case metricdata.Histogram[int64]:
				addHistograms(&f, data)
			case metricdata.Histogram[float64]:
				addHistograms(&f, data)
			default:
				return nil, fmt.Errorf("the metric %s has a kind that cannot be written: %T", m.Name, m.Data)
			}
			families = append(families, f)
		}
	}
	return families, nil
}

func addHistograms[N int64 | float64](f *Family, data metricdata.Histogram[N]) {
	f.Type = Histogram
	for _, p := range data.DataPoints {
		f.AddHistogram(p.Bounds, p.BucketCounts, float64(p.Sum), labelsOf(p.Attributes)...)
	}
}

// labelsOf returns attributes as names, each with its value.
func labelsOf(attributes attribute.Set) (labels []string) {
	for _, a := range attributes.ToSlice() {
		labels = append(labels, strings.ReplaceAll(string(a.Key), ".", "_"), a.Value.String())
	}
	return labels
}
