//go:build unix

package scale

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/bench/baseline"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// pollInterval is the interval of the baselines.
const pollInterval = time.Second

// runConcurrently runs fn n times concurrently.
func runConcurrently(b *testing.B, n int, fn func(ctx context.Context, i int) error) {
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

// BenchmarkHandOverPolled is BenchmarkHandOver with a loop that tries every second instead of a
// Client.
func BenchmarkHandOverPolled(b *testing.B) {
	locker, err := newBackend(b).Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locker.Close(context.WithoutCancel(b.Context())) })
	measureHandOvers(b, func(ctx context.Context, i int) (baseline.Lock, error) {
		return baseline.Plain{Locker: locker, Name: fmt.Sprint("polled-", i), TTL: time.Minute}, nil
	})
}

// BenchmarkHandOverArticle is BenchmarkHandOver with the lock that articles describe.
func BenchmarkHandOverArticle(b *testing.B) {
	coll := mongotest.Collection(b)
	measureHandOvers(b, func(ctx context.Context, i int) (baseline.Lock, error) {
		return baseline.NewPessimistic(ctx, coll, fmt.Sprint("article-", i), time.Minute)
	})
}

// measureHandOvers hands 20 locks over, 10 times each: concurrently, because most of the time is waiting.
func measureHandOvers(b *testing.B, lock func(context.Context, int) (baseline.Lock, error)) {
	for b.Loop() {
		var times bench.Samples
		runConcurrently(b, 20, func(ctx context.Context, i int) error {
			l, err := lock(ctx, i)
			if err != nil {
				return err
			}
			return baseline.HandOvers(ctx, l, 10, pollInterval, &times)
		})
		reportLatency(b, "handoff", &times)
	}
}

// BenchmarkTakeOver lets holders crash. It measures from the expiry in the record until a waiting
// client holds the lock.
func BenchmarkTakeOver(b *testing.B) {
	backend := newBackend(b)
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
		reportLatency(b, "takeover", &times)
	}
}

// BenchmarkTakeOverArticle is BenchmarkTakeOver with the lock that articles describe. By default a
// server removes expired documents once a minute, so 120 holders crash at moments spread over two
// minutes.
func BenchmarkTakeOverArticle(b *testing.B) {
	if os.Getenv(envArticle) == "" {
		b.Skipf("this benchmark takes three minutes; %s=1 runs it", envArticle)
	}
	const ttl, crashes, spread = 2 * time.Second, 120, 2 * time.Minute
	rs := mongotest.StartReplicaSet(b, mongotest.Options{ElectionTimeout: 10 * time.Second})
	server := mongotest.Connect(b, rs.URI())
	defaultTTLMonitor := bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 60}}
	if err := server.Database("admin").RunCommand(b.Context(), defaultTTLMonitor).Err(); err != nil {
		b.Fatal(err)
	}
	coll := server.Database("articles").Collection("locks")
	for b.Loop() {
		var times bench.Samples
		runConcurrently(b, crashes, func(ctx context.Context, i int) error {
			time.Sleep(spread * time.Duration(i) / crashes)
			l, err := baseline.NewPessimistic(ctx, coll, fmt.Sprint("article-", i), ttl)
			if err != nil {
				return err
			}
			return baseline.TakeOver(ctx, l, ttl, pollInterval, &times)
		})
		reportLatency(b, "takeover", &times)
	}
}
