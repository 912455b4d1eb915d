//go:build unix

package integration

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/history"
)

// A thousand waiters in ten processes queue for one held lock, which is then released — each of
// them gets it exactly once, no two at a time, tokens rise, and no update of a counter is lost.
func TestThousandWaiters(t *testing.T) { // not parallel: it keeps all processors busy
	const processes, each = 10, 100
	for _, b := range []func(testing.TB) backend{mongoBackend, postgresBackend, azureBackend, fileBackend} {
		b := b(t)
		t.Run(b.name, func(t *testing.T) {
			name, dir := uniqueName(), t.TempDir()
			holder := b.client(t, nil)
			first := holder.lock(name)
			workers := make([]*workerProcess, processes)
			for i := range workers {
				workers[i] = startWorker(t, job{Role: "waiters", URL: b.url, Name: name, TTL: 2 * b.ttl, Waiters: each, Dir: dir})
			}
			for _, w := range workers {
				w.expect("waiting")
			}
			release(t, first)
			start := time.Now()
			var intervals []holdInterval
			for _, w := range workers {
				for range each {
					var s holdInterval
					if _, err := fmt.Sscan(w.expect("held"), &s.token, &s.from, &s.until); err != nil {
						t.Fatal(err)
					}
					intervals = append(intervals, s)
				}
				w.expect("done")
			}
			t.Logf("%d grants in %v", len(intervals), time.Since(start).Round(time.Millisecond))
			expectDisjoint(t, first.Token(), intervals)
			if n, err := readCounter(dir); err != nil || n != processes*each {
				t.Errorf("the counter is %d, %v; want %d", n, err, processes*each)
			}
		})
	}
}

// holdInterval is the time for which a waiter had the lock. Its context was live at both ends.
type holdInterval struct {
	token       uint64
	from, until int64
}

// expectDisjoint fails unless the intervals, sorted by start, do not overlap and have rising
// tokens.
func expectDisjoint(t *testing.T, token uint64, intervals []holdInterval) {
	t.Helper()
	slices.SortFunc(intervals, func(a, b holdInterval) int { return cmp.Compare(a.from, b.from) })
	var until int64
	for _, s := range intervals {
		if s.token <= token {
			t.Errorf("token %d was granted after token %d", s.token, token)
		}
		if s.from <= until {
			t.Errorf("token %d was granted %v before the hold with token %d ended", s.token, time.Duration(until-s.from), token)
		}
		token, until = s.token, max(until, s.until)
	}
}

// runWaiters runs many waiters in one process. Each increments a counter that only the lock
// protects.
func runWaiters(j job, client *holdfast.Client, _ *bufio.Scanner) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitLimit)
	defer cancel()
	errs := make([]error, j.Waiters)
	var waiters sync.WaitGroup
	for i := range errs {
		waiters.Go(func() {
			errs[i] = client.Do(ctx, j.Name, func(ctx context.Context) error {
				s := holdInterval{from: int64(history.Now())}
				s.token, _ = holdfast.TokenFromContext(ctx)
				err := incrementCounter(j.Dir)
				if ctx.Err() == nil {
					s.until = int64(history.Now())
				}
				fmt.Println("held", s.token, s.from, s.until)
				return err
			})
		})
	}
	time.Sleep(time.Second) // enough for most of them to join the queue
	fmt.Println("waiting")
	waiters.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

func counterPath(dir string) string { return filepath.Join(dir, "counter") }

func readCounter(dir string) (int, error) {
	text, err := os.ReadFile(counterPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func incrementCounter(dir string) error {
	n, err := readCounter(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(counterPath(dir), []byte(strconv.Itoa(n+1)), 0o600)
}
