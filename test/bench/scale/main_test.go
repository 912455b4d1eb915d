//go:build unix

package scale

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	_ "github.com/holdfast-go/holdfast/internal/alldrivers"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The environment variables that change what is measured.
const (
	envRounds    = "HOLDFAST_BENCH_ROUNDS"    // how often each way has its turn; 2 if unset
	envFollowers = "HOLDFAST_BENCH_FOLLOWERS" // 200 if unset
	envWays      = "HOLDFAST_BENCH_WAYS"      // such as hints,poll; all if unset
	envHold      = "HOLDFAST_BENCH_HOLD"      // how long leases are held, such as 5m; 15s if unset
	envGrants    = "HOLDFAST_BENCH_GRANTS"    // how often the waiters' lock is handed over; 1000 if unset
	envArticle   = "HOLDFAST_BENCH_ARTICLE"   // not empty: also the takeover of the article's lock, 3 minutes
)

// TestMain runs the benchmarks, or, in a worker process, its role.
func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		if err := work(role); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	serverprocess.Main(m)
}

// ways are the ways in which a waiter is woken.
func ways() []string {
	return strings.Split(cmp.Or(os.Getenv(envWays), "hints,poll"), ",")
}

func numberFrom(b *testing.B, env string, otherwise int) int {
	b.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s=%q: want a number of at least 1", env, text)
	}
	return n
}

func durationFrom(b *testing.B, env string, otherwise time.Duration) time.Duration {
	b.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		b.Fatalf("%s=%q: want a duration", env, text)
	}
	return d
}

// turns calls measure for every way, and does so again for each round. The way that comes first
// changes from round to round.
func turns(b *testing.B, rounds int, measure func(round int, way string)) {
	b.Helper()
	all := ways()
	for round := range rounds {
		for i := range all {
			measure(round, all[(round+i)%len(all)])
		}
	}
}

// servers are the replica set of a benchmark that measures servers.
type servers struct {
	*mongotest.ReplicaSet
	tb testing.TB
}

func startServers(b *testing.B) servers {
	b.Helper()
	return servers{mongotest.StartReplicaSet(b, mongotest.Options{ElectionTimeout: 10 * time.Second}), b}
}

// locks returns the URL of the locks whose waiters are woken in this way.
func (s servers) locks(way string) string { return urlIn(s.URI(), "scale") + "&wake=" + way }

// client returns a client of the benchmark's own.
func (s servers) client(way string) *holdfast.Client {
	s.tb.Helper()
	return newClient(s.tb, bench.NewBackend(s.locks(way)))
}

// newBackend returns a backend on the replica set that benchmarks share, in a database of its own.
func newBackend(b *testing.B) *bench.Backend {
	b.Helper()
	return bench.NewBackend(urlIn(mongotest.URI(b), mongotest.Collection(b).Database().Name()))
}

// urlIn returns the URL of the locks in a database.
func urlIn(uri, database string) string {
	return serverprocess.WithParams(mongotest.WithDatabase(uri, database), "collection=locks")
}

func newClient(tb testing.TB, backend *bench.Backend) *holdfast.Client {
	tb.Helper()
	client, err := backend.Client(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	locktest.ShutDownAtEnd(tb, client)
	return client
}

// reportLatency adds quantiles to the metrics of a benchmark.
func reportLatency(b *testing.B, what string, times *bench.Samples) {
	b.Helper()
	if l := times.Latency(); l != nil {
		b.ReportMetric(l.P50, what+"-p50-ms")
		b.ReportMetric(l.P90, what+"-p90-ms")
		b.ReportMetric(l.P99, what+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
}

// reportHandOvers compares changes of holder with acquires and releases without waiters.
func reportHandOvers(b *testing.B, handOvers *bench.Samples, free *bench.Calls) {
	b.Helper()
	reportLatency(b, "handoff", handOvers)
	reportLatency(b, "acquire", &free.Acquire)
	reportLatency(b, "release", &free.Release)
	b.ReportMetric(float64(handOvers.Quantile(0.5))/float64(free.AcquireAndRelease()), "handoff/acquire+release")
}

// latencies are the times of each way.
type latencies map[string]*bench.Samples

func (l latencies) add(way string, d time.Duration) {
	if l[way] == nil {
		l[way] = &bench.Samples{}
	}
	l[way].Add(d)
}

func (l latencies) report(b *testing.B, what string) {
	b.Helper()
	for way, times := range l {
		reportLatency(b, way+":"+what, times)
	}
}

// series are the measurements of each way.
type series map[string][]float64

func (s series) add(way string, x float64) { s[way] = append(s[way], x) }

// report adds the median of each way's measurements to the metrics, with its 95 % interval.
func (s series) report(b *testing.B, unit string) {
	b.Helper()
	for way, all := range s {
		median, low, high := ratio.Median(all)
		b.ReportMetric(median, way+":"+unit)
		b.ReportMetric(low, way+":"+unit+"-low95")
		b.ReportMetric(high, way+":"+unit+"-high95")
	}
	b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
