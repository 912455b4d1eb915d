//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

// target is a backend, and what can be done to it.
type target struct {
	name string
	// ttl of the lock, which the times of faults depend on.
	ttl time.Duration
	// faults of the servers, and up to how long one is after another.
	faults []disturbance
	gap    time.Duration
	// client is what a client is given: its configuration, and its way to the servers.
	client func() (workload.Config, fault.Mesh)
	// grants is in how much time there must be one grant at least, on average.
	grants time.Duration
}

const (
	// calm is how long the lock may stay ungranted after the last fault: Azure may
	// keep others waiting for a minute after the end of a lease.
	calm = 2 * time.Minute
	// dismissal is how long all processes together may take to end in order.
	dismissal = 90 * time.Second
	// thinking is how long the check of a register may take.
	thinking = 5 * time.Minute
)

// run has faults come over a backend for a while, and checks what became of it.
func run(t *testing.T, start func(*testing.T, *history.Recorder) *target, duration time.Duration, seed, stream uint64) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	on := start(t, rec)
	store, err := workload.NewStore(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	crew := newCrew(t, rec, store, dir, on)
	granted(t, store, "at the start")
	rage(t, on, crew, duration, seed, stream)
	granted(t, store, "after the last fault")
	dismiss(t, crew)
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	judge(t, on, dir, duration, seed)
}

// breath is up to how long clients are left in peace.
const breath = 5 * time.Second

// rage lets three storms loose: one over the servers, one over each half of the
// clients.
func rage(t *testing.T, on *target, crew *crew, duration time.Duration, seed, stream uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	half := len(crew.members) / 2
	var storms sync.WaitGroup
	for i, s := range []storm{
		{faults: on.faults, gap: on.gap},
		{faults: clientFaults(crew.members[:half], on.ttl), gap: breath},
		{faults: clientFaults(crew.members[half:], on.ttl), gap: breath},
	} {
		s.t, s.rec, s.random = t, crew.rec, rand.New(rand.NewPCG(seed, stream*10+uint64(i)))
		storms.Go(func() { s.rage(ctx) })
	}
	storms.Wait()
}

// granted waits until the lock is granted anew: it is not stuck.
func granted(t *testing.T, store *workload.Store, when string) {
	t.Helper()
	begin, token := time.Now(), store.LastToken()
	for store.LastToken() == token {
		if time.Since(begin) > calm {
			t.Errorf("%s the lock was not granted to anybody for %v", when, calm)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%s the lock was granted within %v", when, time.Since(begin).Round(time.Millisecond))
}

// dismiss has all clients end in order, at the same time.
func dismiss(t *testing.T, crew *crew) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dismissal)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range crew.members {
		all.Go(func() {
			if err := c.now.Terminate(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// judge checks the history and prints the summary.
func judge(t *testing.T, on *target, dir string, duration time.Duration, seed uint64) {
	lines, err := history.LoadLines(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.Merge(lines)
	if err != nil {
		t.Fatal(err)
	}
	r := history.Check(h, thinking)
	fmt.Printf("\nchaos on %s: %v, seed %d, TTL %v, %d processes\n%s\n", on.name, duration, seed, on.ttl, clients, r)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if least := max(5, int(duration/on.grants)); r.Grants < least {
		t.Errorf("%d grants are too few to mean anything: at least %d were to be expected", r.Grants, least)
	}
	if r.Holders < 3 {
		t.Errorf("only %d clients ever had the lock", r.Holders)
	}
	if len(h.Faults) == 0 {
		t.Error("there was no fault")
	}
	if !t.Failed() {
		return
	}
	kept, err := keep(fmt.Sprintf("chaos-%s-seed-%d", on.name, seed), dir, lines, r)
	fmt.Printf("chaos on %s: the history is in %s\n", on.name, kept)
	if err != nil {
		t.Error(err)
	}
}

// keep stores a failing history, with what the processes logged.
func keep(name, dir string, lines []history.Line, r *history.Report) (string, error) {
	folder := os.Getenv(history.EnvArtifacts)
	if folder == "" {
		folder = filepath.Join("..", "..", ".cache", "artifacts")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	kept, err := history.Save(folder, name, lines, r)
	if err != nil {
		return kept, err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(kept, filepath.Base(log)), b, 0o600)
		}
		if err != nil {
			return kept, err
		}
	}
	return kept, err
}
