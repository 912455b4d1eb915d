//go:build unix

package endtoend

import (
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// BenchmarkHandover measures how long after a release in one process a waiting
// process has the lock, against a majority write in the same run. The default poll
// interval is a second: only the change stream can be as quick as this.
func BenchmarkHandover(b *testing.B) {
	uri := mongotest.URI(b)
	coll := mongotest.Collection(b)
	scratch := coll.Database().Collection("scratch", options.Collection().SetWriteConcern(writeconcern.Majority()))
	url := lockURL(b, uri, "handover-"+coll.Database().Name())
	holder, waiter := start(b, "relay", url, uri, b.TempDir(), "30s"), start(b, "relay", url, uri, b.TempDir(), "30s")
	holder.tell("lock")
	holder.expect("locked")
	var writes, handovers []time.Duration
	for b.Loop() {
		begin := time.Now()
		if _, err := scratch.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: 1}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true)); err != nil {
			b.Fatal(err)
		}
		writes = append(writes, time.Since(begin))
		waiter.tell("lock")
		time.Sleep(30 * time.Millisecond) // until it waits; a release before that only makes it look better
		holder.tell("release")
		released := holder.expectInt("released")
		handovers = append(handovers, time.Duration(waiter.expectInt("locked")-released))
		holder, waiter = waiter, holder
	}
	write, handover := median(writes), median(handovers)
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	b.ReportMetric(float64(write.Microseconds()), "majority-write-µs")
	b.ReportMetric(float64(handover.Microseconds()), "hand-over-µs")
	b.ReportMetric(float64(handover)/float64(write), "hand-over/write")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
