//go:build unix

package endtoend

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
)

// All waiters wait for one name.
const (
	waiterProcesses   = 10
	waitersPerProcess = 100
)

// waiterHold is one hold of a waiter. Its times are nanoseconds of the machine's clock.
type waiterHold struct {
	token    uint64
	from, to int64
	process  int // the number of the waiter's process
}

// waiters runs goroutines that each acquire the lock a number of times, which it reads from
// standard input. It writes a line for each hold, and at the end the number of commands sent.
func waiters(ctx context.Context, client *holdfast.Client, backend *bench.Backend) error {
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !input.Scan() {
		return input.Err()
	}
	each, err := strconv.Atoi(input.Text())
	if err != nil {
		return err
	}
	calls := backend.Calls()
	all := make([][]waiterHold, waitersPerProcess)
	errs := make(chan error, waitersPerProcess)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range each {
				hold, err := client.Lock(ctx, lockName)
				if err != nil {
					errs <- err
					return
				}
				h := waiterHold{token: hold.Token(), from: time.Now().UnixNano()}
				if err := hold.Err(); err != nil {
					errs <- err
					return
				}
				h.to = time.Now().UnixNano()
				all[i] = append(all[i], h)
				if err := hold.Release(ctx); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		return err
	}
	calls = backend.Calls() - calls
	for waiter, holds := range all {
		for _, h := range holds {
			fmt.Println("hold", waiter, h.token, h.from, h.to)
		}
	}
	fmt.Println("calls", calls)
	return nil
}

// BenchmarkWaiters hands one lock over between 1,000 waiters in 10 processes. They do no work while
// they hold it. Each waiter must get it, one at a time and with rising tokens. The time of a
// handoff is compared with that of an acquire and a release without waiters.
func BenchmarkWaiters(b *testing.B) {
	handOvers := numberFrom(b, envGrants, 1000)
	backend := newBackend(b, "swarm")
	alone := newClient(b, backend)
	for b.Loop() {
		var calls bench.Calls
		for range 300 {
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
		}
		holds, commands, longest := runWaiters(b, backend.URL(), handOvers/(waiterProcesses*waitersPerProcess))
		checkHolds(b, holds)
		took := time.Duration(holds[len(holds)-1].to - holds[0].from)
		each := took / time.Duration(len(holds)-1)
		free := calls.Acquire.Quantile(0.5) + calls.Release.Quantile(0.5)
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(float64(len(holds)), "handoffs")
		b.ReportMetric(float64(each.Microseconds())/1000, "handoff-ms")
		b.ReportMetric(float64(free.Microseconds())/1000, "acquire+release-ms")
		b.ReportMetric(float64(each)/float64(free), "handoff/acquire+release")
		b.ReportMetric(float64(commands)/float64(len(holds)), "commands/handoff")
		b.ReportMetric(longest.Seconds(), "longest-wait-s")
		b.ReportMetric(float64(longestRow(holds)), "in-a-row")
	}
}

// runWaiters returns all holds in their order, the number of commands that they took, and the
// longest time between two holds of a waiter.
func runWaiters(b *testing.B, url string, each int) (holds []waiterHold, commands int64, longest time.Duration) {
	b.Helper()
	var workers []worker
	for range waiterProcesses {
		workers = append(workers, start(b, "waiters", url, "30s"))
	}
	for _, w := range workers {
		w.expect("ready")
	}
	begin := time.Now().UnixNano()
	for _, w := range workers {
		w.send(strconv.Itoa(each))
	}
	for process, w := range workers {
		last := make([]int64, waitersPerProcess)
		for range waitersPerProcess * each {
			fields := w.expectWithin(10*time.Minute, "hold")
			var waiter int
			h := waiterHold{process: process}
			if _, err := fmt.Sscan(fmt.Sprint(fields[0], " ", fields[1], " ", fields[2], " ", fields[3]), &waiter, &h.token, &h.from,
				&h.to); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Duration(h.from-cmp.Or(last[waiter], begin)))
			last[waiter] = h.to
			holds = append(holds, h)
		}
		commands += w.expectInt("calls")
	}
	slices.SortFunc(holds, func(a, b waiterHold) int { return cmp.Compare(a.token, b.token) })
	return holds, commands, longest
}

// longestRow returns the largest number of consecutive holds of one process.
func longestRow(holds []waiterHold) (longest int) {
	row := 0
	for i, h := range holds {
		if i > 0 && h.process != holds[i-1].process {
			row = 0
		}
		row++
		longest = max(longest, row)
	}
	return longest
}

// checkHolds fails the benchmark unless holds follow one another in the order of their tokens.
func checkHolds(b *testing.B, holds []waiterHold) {
	b.Helper()
	for i, h := range holds[1:] {
		if before := holds[i]; h.token == before.token || h.from < before.to {
			b.Errorf("token %d was held while token %d was held", h.token, before.token)
		}
	}
}

func numberFrom(b *testing.B, env string, short int) int {
	b.Helper()
	value := os.Getenv(env)
	if value == "" {
		return short
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < waiterProcesses*waitersPerProcess {
		b.Fatalf("%s=%q: want a number of at least %d", env, value, waiterProcesses*waitersPerProcess)
	}
	return n
}
