//go:build unix

package endtoend

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/internal/bench"
	"github.com/holdfast-go/holdfast/internal/bench/baseline"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// every is how often the baselines ask.
const every = time.Second

// together runs fn n times at once.
func together(b *testing.B, n int, fn func(ctx context.Context, i int) error) {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := fn(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHandOverPolled is BenchmarkHandOver with a loop that tries every second
// instead of a Client.
func BenchmarkHandOverPolled(b *testing.B) {
	locker, err := locksOf(b, "polled").Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locker.Close(context.WithoutCancel(b.Context())) })
	handOversOf(b, func(ctx context.Context, i int) (baseline.Lock, error) {
		return baseline.Plain{Locker: locker, Name: fmt.Sprint("polled-", i), TTL: time.Minute}, nil
	})
}

// BenchmarkHandOverArticle is BenchmarkHandOver with the lock that articles describe.
func BenchmarkHandOverArticle(b *testing.B) {
	coll := mongotest.Collection(b)
	handOversOf(b, func(ctx context.Context, i int) (baseline.Lock, error) {
		return baseline.NewPessimistic(ctx, coll, fmt.Sprint("article-", i), time.Minute)
	})
}

// handOversOf passes 20 locks on, 10 times each: the waiting takes most of the time.
func handOversOf(b *testing.B, lock func(context.Context, int) (baseline.Lock, error)) {
	for b.Loop() {
		var times bench.Samples
		together(b, 20, func(ctx context.Context, i int) error {
			l, err := lock(ctx, i)
			if err != nil {
				return err
			}
			return baseline.HandOvers(ctx, l, 10, every, &times)
		})
		b.ReportMetric(0, "ns/op") // the loop's own time says nothing
		reportLatency(b, "hand-over", &times)
	}
}

// BenchmarkTakeOver has holders crash, and measures from the moment at which the server
// lets others have the lock, as the record tells it, to when a waiting client has it.
func BenchmarkTakeOver(b *testing.B) {
	backend := locksOf(b, "crashes")
	locker, err := backend.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locker.Close(context.WithoutCancel(b.Context())) })
	waiting := newClient(b, backend)
	for b.Loop() {
		var times bench.Samples
		if err := bench.TakeOvers(b.Context(), locker, waiting, "", 300, 2*time.Second, 30*time.Second, &times); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(0, "ns/op") // the loop's own time says nothing
		reportLatency(b, "take-over", &times)
	}
}

// BenchmarkTakeOverArticle is BenchmarkTakeOver with the lock that articles describe. A
// server that is set as servers are removes what has expired once a minute; so 120
// holders crash at moments spread over two minutes.
func BenchmarkTakeOverArticle(b *testing.B) {
	if os.Getenv(envArticle) == "" {
		b.Skipf("it takes three minutes; %s=1 runs it", envArticle)
	}
	const ttl, crashes, spread = 2 * time.Second, 120, 2 * time.Minute
	rs := mongotest.StartReplicaSet(b, mongotest.Options{ElectionTimeout: 10 * time.Second})
	server := mongotest.Connect(b, rs.URI())
	asServersAre := bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 60}}
	if err := server.Database("admin").RunCommand(b.Context(), asServersAre).Err(); err != nil {
		b.Fatal(err)
	}
	coll := server.Database("articles").Collection("locks")
	for b.Loop() {
		var times bench.Samples
		together(b, crashes, func(ctx context.Context, i int) error {
			time.Sleep(spread * time.Duration(i) / crashes)
			l, err := baseline.NewPessimistic(ctx, coll, fmt.Sprint("article-", i), ttl)
			if err != nil {
				return err
			}
			return baseline.TakeOver(ctx, l, ttl, every, &times)
		})
		b.ReportMetric(0, "ns/op") // the loop's own time says nothing
		reportLatency(b, "take-over", &times)
	}
}
