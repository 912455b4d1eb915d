//go:build unix

package scale

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// pause is how long each lock is held before its release, so that the other process waits for it by then.
const pause = 50 * time.Millisecond

// pair is two worker processes that hand a lock over to one another.
type pair struct {
	name           string
	holder, waiter *worker
}

// startPair starts them. One holds the lock.
func startPair(b *testing.B, url, name string) *pair {
	b.Helper()
	p := &pair{name, startWorker(b, "followers", url, 1), startWorker(b, "followers", url, 1)}
	p.holder.expect("ready")
	p.waiter.expect("ready")
	p.holder.send("lock", p.name)
	p.holder.expect("grant")
	return p
}

// handOver returns the time from before the release until the other process holds the lock.
func (p *pair) handOver(pause time.Duration) time.Duration {
	p.waiter.send("lock", p.name)
	time.Sleep(pause) // a release before it waits would only make the result look better
	p.holder.send("release")
	released := p.holder.expect("released")[0]
	took := time.Duration(p.waiter.expect("grant")[3] - released)
	p.holder, p.waiter = p.waiter, p.holder
	return took
}

// BenchmarkHandOverProcesses hands a lock over between two processes, in each way in turn, and alternately
// acquires and releases a lock that nobody waits for, and makes a plain write that a majority acknowledges.
//
// The holder has kept its lock for a pause before the release, and each command takes longer after a
// pause, since the servers and the processors were idle. So there are two comparisons: with an acquire
// and a release in quick succession, which favors those, and with an acquire and a release that each
// follow a pause, which favors the handoff: only its release follows one.
func BenchmarkHandOverProcesses(b *testing.B) {
	s := startServers(b)
	alone := s.client("poll")
	scratch := mongotest.Connect(b, s.URI()).Database("scale").Collection("written")
	pairs := map[string]*pair{}
	for _, way := range ways() {
		pairs[way] = startPair(b, s.locks(way), way)
	}
	for b.Loop() {
		var writes bench.Samples
		times, freeTimes := latencies{}, latencies{}
		quickRatios, pausedRatios := series{}, series{}
		turns(b, 100*numberFrom(b, envRounds, 2), func(round int, way string) {
			if way == "poll" && round%10 != 0 {
				return // it takes the poll interval
			}
			var quick bench.Calls
			if err := quick.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			if _, err := scratch.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: 1}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true)); err != nil {
				b.Fatal(err)
			}
			writes.Add(time.Since(begin))
			paused := afterPauses(b, alone)
			took, free := pairs[way].handOver(pause), quick.AcquireAndRelease()
			times.add(way, took)
			freeTimes.add(way, free)
			quickRatios.add(way, float64(took)/float64(free))
			pausedRatios.add(way, float64(took)/float64(paused))
		})
		reportLatency(b, "write", &writes)
		times.report(b, "handoff")
		freeTimes.report(b, "acquire+release")
		quickRatios.report(b, "handoff/acquire+release")
		pausedRatios.report(b, "handoff/acquire+release-after-pauses")
	}
}

// afterPauses returns the time of an acquire and a release that each follow a pause.
func afterPauses(b *testing.B, client *holdfast.Client) time.Duration {
	b.Helper()
	time.Sleep(pause)
	begin := time.Now()
	hold, err := client.TryLock(b.Context(), "free")
	acquire := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(pause)
	begin = time.Now()
	if err := hold.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	return acquire + time.Since(begin)
}
