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
	"github.com/holdfast-go/holdfast/integration/history"
)

// A thousand waiters in ten processes queue for one held lock, which is then released —
// each gets it once, no two at a time, tokens rise, and no addition to a counter is lost.
func TestThousandWaiters(t *testing.T) { // alone: it has work for all processors
	const processes, each = 10, 100
	for _, b := range []func(testing.TB) target{mongoTarget, azureTarget, fileTarget} {
		b := b(t)
		t.Run(b.name, func(t *testing.T) {
			name, dir := fresh(), t.TempDir()
			holder := b.actor(t, nil)
			first := holder.lock(name)
			crowd := make([]*worker, processes)
			for i := range crowd {
				crowd[i] = newWorker(t, job{Role: "crowd", URL: b.url, Name: name, TTL: 2 * b.ttl, Many: each, Dir: dir})
			}
			for _, w := range crowd {
				w.expect("waiting")
			}
			release(t, first)
			start := time.Now()
			var stays []stay
			for _, w := range crowd {
				for range each {
					var s stay
					if _, err := fmt.Sscan(w.expect("stay"), &s.token, &s.from, &s.until); err != nil {
						t.Fatal(err)
					}
					stays = append(stays, s)
				}
				w.expect("done")
			}
			t.Logf("%d hand-overs in %v", len(stays), time.Since(start).Round(time.Millisecond))
			disjoint(t, first.Token(), stays)
			if n, err := readCounter(dir); err != nil || n != processes*each {
				t.Errorf("the counter is %d, %v; want %d", n, err, processes*each)
			}
		})
	}
}

// stay is how long a waiter had the lock: at both times its context was live.
type stay struct {
	token       uint64
	from, until int64
}

// disjoint fails unless the stays, put in order, do not touch and have rising tokens.
func disjoint(t *testing.T, token uint64, stays []stay) {
	t.Helper()
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(a.from, b.from) })
	var until int64
	for _, s := range stays {
		if s.token <= token {
			t.Errorf("token %d came after %d", s.token, token)
		}
		if s.from <= until {
			t.Errorf("token %d was granted %v before %d had ended", s.token, time.Duration(until-s.from), token)
		}
		token, until = s.token, max(until, s.until)
	}
}

// crowd is many waiters of one process, each of which adds to a counter in two steps that
// nothing but the lock protects.
func crowd(j job, client *holdfast.Client, _ *bufio.Scanner) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	errs := make([]error, j.Many)
	var waiters sync.WaitGroup
	for i := range errs {
		waiters.Go(func() {
			errs[i] = client.Do(ctx, j.Name, func(ctx context.Context) error {
				s := stay{from: int64(history.Now())}
				s.token, _ = holdfast.TokenFromContext(ctx)
				err := addOne(j.Dir)
				if ctx.Err() == nil {
					s.until = int64(history.Now())
				}
				fmt.Println("stay", s.token, s.from, s.until)
				return err
			})
		})
	}
	time.Sleep(time.Second) // all are in the queue then, or will be
	fmt.Println("waiting")
	waiters.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

func counterIn(dir string) string { return filepath.Join(dir, "counter") }

func readCounter(dir string) (int, error) {
	text, err := os.ReadFile(counterIn(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func addOne(dir string) error {
	n, err := readCounter(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(counterIn(dir), []byte(strconv.Itoa(n+1)), 0o600)
}
