//go:build unix

package endtoend

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// BenchmarkHandOverProcesses is BenchmarkHandOver with two processes, and with a plain majority
// write measured alternately. The default poll interval is a second, so the measured times are those
// of the hints.
func BenchmarkHandOverProcesses(b *testing.B) {
	const rounds = 200
	backend := newBackend(b, "processes")
	alone := newClient(b, backend)
	scratch := mongotest.Collection(b).Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	for b.Loop() {
		holder, waiter := start(b, "relay", backend.URL(), "30s"), start(b, "relay", backend.URL(), "30s")
		holder.send("lock")
		holder.expect("locked")
		var calls bench.Calls
		var writes, handOvers bench.Samples
		for range rounds {
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			if _, err := scratch.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: 1}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true)); err != nil {
				b.Fatal(err)
			}
			writes.Add(time.Since(begin))
			handOvers.Add(handOver(holder, waiter, 50*time.Millisecond))
			holder, waiter = waiter, holder
		}
		holder.send("release")
		holder.expect("released")
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		reportLatency(b, "write", &writes)
		reportLatency(b, "handoff", &handOvers)
		b.ReportMetric(ratio(handOvers.Quantile(0.5), calls.Acquire.Quantile(0.5), calls.Release.Quantile(0.5)), "handoff/acquire+release")
	}
}
