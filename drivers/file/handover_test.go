package file

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func init() { tasks["hand over"] = handOverTask }

const (
	handOverProcesses = 4
	handOverEach      = 25
)

// handOverTask waits for a lock, again and again, and adds to a number in a file. It polls once an
// hour only, so each wake-up that gets lost stops it.
func handOverTask(dir string) error {
	l, err := New(dir)
	if err != nil {
		return err
	}
	client, err := holdfast.New(l, holdfast.WithPollInterval(time.Hour), holdfast.WithTTL(2*time.Hour),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "count")
	for range handOverEach {
		err := client.Do(context.Background(), "job", func(ctx context.Context) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var n int
			var last uint64
			if _, err := fmt.Sscan(string(content), &n, &last); err != nil {
				return err
			}
			token, _ := holdfast.TokenFromContext(ctx)
			if token <= last {
				return fmt.Errorf("token %d after %d", token, last)
			}
			time.Sleep(time.Millisecond) // gives a second holder time, if there is one
			return os.WriteFile(path, fmt.Appendln(nil, n+1, token), 0o600)
		})
		if err != nil {
			return err
		}
	}
	return client.Shutdown(context.Background())
}

// Processes that wait for one lock hand it over by wake-ups alone. One at a time has it, the tokens
// rise, and all of them get their turns.
func TestProcessesHandOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "count"), "0 0\n")
	var running sync.WaitGroup
	for range handOverProcesses {
		cmd := child(t, "hand over", dir)
		limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
		running.Go(func() {
			defer limit.Stop()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a process: %v %s", err, out)
			}
		})
	}
	running.Wait()
	var n int
	var token uint64
	content := must(os.ReadFile(filepath.Join(dir, "count")))
	if _, err := fmt.Sscan(string(content), &n, &token); err != nil || n != handOverProcesses*handOverEach {
		t.Errorf("%d processes counted to %d, want %d (%v)", handOverProcesses, n, handOverProcesses*handOverEach, err)
	}
}
