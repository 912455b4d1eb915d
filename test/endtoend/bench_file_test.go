//go:build unix

package endtoend

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/leases"
)

// BenchmarkFileHandOver hands one lock over between two processes that share a folder. It compares
// that with the time of an acquire and a release without waiters, measured alternately.
func BenchmarkFileHandOver(b *testing.B) {
	const rounds = 300
	for b.Loop() {
		backend := bench.NewBackend("file:" + b.TempDir())
		alone := newClient(b, backend)
		holder, waiter := start(b, "relay", backend.URL(), "30s"), start(b, "relay", backend.URL(), "30s")
		holder.send("lock")
		holder.expect("locked")
		var calls bench.Calls
		var handOvers bench.Samples
		for range rounds {
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			handOvers.Add(handOver(holder, waiter, 20*time.Millisecond))
			holder, waiter = waiter, holder
		}
		holder.send("release")
		holder.expect("released")
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		reportLatency(b, "handoff", &handOvers)
		reportLatency(b, "acquire", &calls.Acquire)
		reportLatency(b, "release", &calls.Release)
		b.ReportMetric(ratio(handOvers.Quantile(0.5), calls.Acquire.Quantile(0.5), calls.Release.Quantile(0.5)), "handoff/acquire+release")
	}
}

// handOver hands a lock over from one worker to another, and returns how long that took. begins is the time in which the other
// begins to wait: a release before that would only make the result look better.
func handOver(holder, waiter worker, begins time.Duration) time.Duration {
	waiter.send("lock")
	time.Sleep(begins)
	holder.send("release")
	released := holder.expectInt("released")
	return time.Duration(waiter.expectInt("locked") - released)
}

// BenchmarkFileStandby has one process hold 2,000 names and another one campaign for them, with the
// default settings. It reports the processor time of each, in percent of one processor.
func BenchmarkFileStandby(b *testing.B) {
	const names = 2000
	window := min(durationFrom(b, envHold, 30*time.Second), 2*time.Minute)
	for b.Loop() {
		url := "file:" + b.TempDir()
		holder, standby := start(b, "manage", url, "30s"), start(b, "manage", url, "30s")
		holder.send(fmt.Sprint("add ", names))
		for held := int64(0); held < names; held = holder.expectInt("held") {
			time.Sleep(100 * time.Millisecond)
			holder.send("held")
		}
		standby.send(fmt.Sprint("add ", names))
		time.Sleep(15 * time.Second) // by then it has tried each name
		cpu := func(w worker) time.Duration {
			w.send("cpu")
			return time.Duration(w.expectInt("cpu"))
		}
		begin, holding, waiting := time.Now(), cpu(holder), cpu(standby)
		time.Sleep(window)
		took := time.Since(begin)
		percent := func(used time.Duration) float64 { return 100 * used.Seconds() / took.Seconds() }
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(percent(cpu(standby)-waiting), "standby-cpu-%")
		b.ReportMetric(percent(cpu(holder)-holding), "holder-cpu-%")
	}
}

// manage campaigns for names with a LeaseManager, and reports on command how many it holds and how
// much processor time the process has used.
func manage(_ context.Context, client *holdfast.Client, _ *bench.Backend) error {
	manager, err := leases.New(client)
	if err != nil {
		return err
	}
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		command, argument, _ := strings.Cut(commands.Text(), " ")
		switch command {
		case "add":
			n, err := strconv.Atoi(argument)
			if err != nil {
				return err
			}
			for i := range n {
				if err := manager.Add(fmt.Sprint("name-", i)); err != nil {
					return err
				}
			}
		case "held":
			fmt.Println("held", len(manager.Leases()))
		case "cpu":
			var u syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
				return err
			}
			fmt.Println("cpu", u.Utime.Nano()+u.Stime.Nano())
		}
	}
	return nil
}
