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
	"github.com/holdfast-go/holdfast/internal/bench"
)

// The waiters of one process, all on one name.
const (
	swarmProcesses = 10
	swarmWaiters   = 100
)

// turn is one hold of a waiter. Its times are nanoseconds of the machine's clock.
type turn struct {
	token    uint64
	from, to int64
	process  int // counted by who starts them
}

// swarm has many goroutines wait for the lock, each a number of times, and says what
// they got: a line for each turn, and at the end what it asked of the servers.
func swarm(ctx context.Context, client *holdfast.Client, backend *bench.Backend) error {
	orders := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !orders.Scan() {
		return orders.Err()
	}
	each, err := strconv.Atoi(orders.Text())
	if err != nil {
		return err
	}
	calls := backend.Calls()
	all := make([][]turn, swarmWaiters)
	errs := make(chan error, swarmWaiters)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range each {
				hold, err := client.Lock(ctx, lockName)
				if err != nil {
					errs <- err
					return
				}
				t := turn{token: hold.Token(), from: time.Now().UnixNano()}
				if err := hold.Err(); err != nil {
					errs <- err
					return
				}
				t.to = time.Now().UnixNano()
				all[i] = append(all[i], t)
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
	for waiter, turns := range all {
		for _, t := range turns {
			fmt.Println("turn", waiter, t.token, t.from, t.to)
		}
	}
	fmt.Println("calls", calls)
	return nil
}

// BenchmarkWaiters has 1,000 waiters in 10 processes pass one lock on, without doing
// anything under it. All must be served, one at a time, with rising tokens. What a
// hand-over takes is compared with an acquire and a release that nobody waits for.
func BenchmarkWaiters(b *testing.B) {
	handOvers := numberFrom(b, envHandOvers, 1000)
	backend := locksOf(b, "swarm")
	alone := newClient(b, backend)
	for b.Loop() {
		var calls bench.Calls
		for range 300 {
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
		}
		turns, asked, longest := runSwarm(b, backend.URL(), handOvers/(swarmProcesses*swarmWaiters))
		checkTurns(b, turns)
		took := time.Duration(turns[len(turns)-1].to - turns[0].from)
		each := took / time.Duration(len(turns)-1)
		free := calls.Acquire.Quantile(0.5) + calls.Release.Quantile(0.5)
		b.ReportMetric(0, "ns/op") // the loop's own time says nothing
		b.ReportMetric(float64(len(turns)), "hand-overs")
		b.ReportMetric(float64(each.Microseconds())/1000, "hand-over-ms")
		b.ReportMetric(float64(free.Microseconds())/1000, "acquire+release-ms")
		b.ReportMetric(float64(each)/float64(free), "hand-over/acquire+release")
		b.ReportMetric(float64(asked)/float64(len(turns)), "commands/hand-over")
		b.ReportMetric(longest.Seconds(), "longest-wait-s")
		b.ReportMetric(float64(longestRow(turns)), "in-a-row")
	}
}

// runSwarm returns all turns in their order, how many commands they took, and how
// long the longest wait between two turns of a waiter was.
func runSwarm(b *testing.B, url string, each int) (turns []turn, asked int64, longest time.Duration) {
	b.Helper()
	var workers []worker
	for range swarmProcesses {
		workers = append(workers, start(b, "swarm", url, "", b.TempDir(), "30s"))
	}
	for _, w := range workers {
		w.expect("ready")
	}
	begin := time.Now().UnixNano()
	for _, w := range workers {
		w.tell(strconv.Itoa(each))
	}
	for process, w := range workers {
		last := make([]int64, swarmWaiters)
		for range swarmWaiters * each {
			fields := w.expectWithin(10*time.Minute, "turn")
			var waiter int
			t := turn{process: process}
			if _, err := fmt.Sscan(fmt.Sprint(fields[0], " ", fields[1], " ", fields[2], " ", fields[3]), &waiter, &t.token, &t.from, &t.to); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Duration(t.from-cmp.Or(last[waiter], begin)))
			last[waiter] = t.to
			turns = append(turns, t)
		}
		asked += w.expectInt("calls")
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.token, b.token) })
	return turns, asked, longest
}

// longestRow is how many turns in a row one process had at most.
func longestRow(turns []turn) (longest int) {
	row := 0
	for i, t := range turns {
		if i > 0 && t.process != turns[i-1].process {
			row = 0
		}
		row++
		longest = max(longest, row)
	}
	return longest
}

// checkTurns fails if two waiters were in at once, or a later one had a lower token.
func checkTurns(b *testing.B, turns []turn) {
	b.Helper()
	for i, t := range turns[1:] {
		if before := turns[i]; t.token == before.token || t.from < before.to {
			b.Errorf("token %d was held while token %d was", t.token, before.token)
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
	if err != nil || n < swarmProcesses*swarmWaiters {
		b.Fatalf("%s=%q: want a number of at least %d", env, value, swarmProcesses*swarmWaiters)
	}
	return n
}
