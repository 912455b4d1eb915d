//go:build unix

package endtoend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The environment variables of a worker process.
const (
	envRole = "HOLDFAST_WORKER_ROLE"
	envURL  = "HOLDFAST_WORKER_URL" // of the locks
	envTTL  = "HOLDFAST_WORKER_TTL"
)

const lockName = "the-job"

// TestMain runs the tests, or, in a worker process, its role.
func TestMain(m *testing.M) {
	roles := map[string]func(context.Context, *holdfast.Client, *bench.Backend) error{
		"relay": relay, "waiters": waiters, "manage": manage,
	}
	role := roles[os.Getenv(envRole)]
	if role == nil {
		serverprocess.Parallel(16)
		os.Exit(serverprocess.Run(m))
	}
	if err := work(role); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func work(role func(context.Context, *holdfast.Client, *bench.Backend) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ttl, err := time.ParseDuration(os.Getenv(envTTL))
	if err != nil {
		return err
	}
	backend := bench.NewBackend(os.Getenv(envURL))
	client, err := backend.Client(ctx, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	err = role(ctx, client, backend)
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, client.Shutdown(closing))
}

// relay acquires and releases the lock on command and writes when, by the clock that all processes
// share.
func relay(ctx context.Context, client *holdfast.Client, _ *bench.Backend) error {
	commands := bufio.NewScanner(os.Stdin)
	var hold *holdfast.Hold
	for commands.Scan() {
		switch commands.Text() {
		case "lock":
			var err error
			if hold, err = client.Lock(ctx, lockName); err != nil {
				return err
			}
			fmt.Println("locked", time.Now().UnixNano())
		case "release":
			at := time.Now().UnixNano()
			if err := hold.Release(ctx); err != nil {
				return err
			}
			fmt.Println("released", at)
		}
	}
	return nil
}

// worker is a worker process of a test.
type worker struct {
	*process
	tb testing.TB
}

// expect waits for a line of output that begins with a word and returns the fields after it.
func (w worker) expect(word string) []string {
	w.tb.Helper()
	return w.expectWithin(time.Minute, word)
}

func (w worker) expectWithin(limit time.Duration, word string) []string {
	w.tb.Helper()
	timeout := time.After(limit)
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				w.tb.Fatalf("a worker ended before it wrote %q", word)
			}
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == word {
				return fields[1:]
			}
			if strings.HasPrefix(line, "error") {
				w.tb.Fatalf("a worker: %s", line)
			}
		case <-timeout:
			w.tb.Fatalf("a worker did not write %q within %v", word, limit)
		}
	}
}

func (w worker) expectInt(word string) int64 {
	w.tb.Helper()
	n, err := strconv.ParseInt(w.expect(word)[0], 10, 64)
	if err != nil {
		w.tb.Fatal(err)
	}
	return n
}
