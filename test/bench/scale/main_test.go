//go:build unix

package scale

import (
	"cmp"
	"fmt"
	"os"
	"slices"
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

// backend opens Clients whose waiters are woken in this way.
func backend(url, way string) *bench.Backend { return bench.NewBackend(url + "&wake=" + way) }

// servers are the replica set of a benchmark.
type servers struct {
	*mongotest.ReplicaSet
	tb testing.TB
}

func startServers(b *testing.B) servers {
	b.Helper()
	return servers{mongotest.StartReplicaSet(b, mongotest.Options{ElectionTimeout: 10 * time.Second}), b}
}

// locks returns the URL of the locks.
func (s servers) locks() string {
	hosts, options, _ := strings.Cut(s.URI(), "/?")
	return hosts + "/scale?" + options + "&collection=locks"
}

// client returns a client of the benchmark's own.
func (s servers) client(way string, opts ...holdfast.ClientOption) *holdfast.Client {
	s.tb.Helper()
	client, err := backend(s.locks(), way).Client(s.tb.Context(), opts...)
	if err != nil {
		s.tb.Fatal(err)
	}
	locktest.ShutDownAtEnd(s.tb, client)
	return client
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
}

// quantiles adds quantiles of each way's measurements to the metrics.
func (s series) quantiles(b *testing.B, unit string) {
	b.Helper()
	for way, all := range s {
		sorted := slices.Sorted(slices.Values(all))
		for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1} {
			i := min(int(q*float64(len(sorted))), len(sorted)-1)
			b.ReportMetric(sorted[i], way+":"+name+"-"+unit)
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
