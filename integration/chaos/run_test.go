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
	"github.com/holdfast-go/holdfast/integration/registers"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
)

// backend is a backend and the faults that can be injected into it.
type backend struct {
	name string
	// ttl is the TTL of the lock. The durations of faults depend on it.
	ttl time.Duration
	// faults are those of the servers. maxInterval is the longest time between two of them.
	faults      []faultKind
	maxInterval time.Duration
	// client returns the configuration of a new client and the network between it and the
	// servers.
	client func() (workload.Config, fault.Mesh)
	// grants is the time within which there must be at least one grant, on average.
	grants time.Duration
}

const (
	// grantTimeout is how long the lock may stay ungranted after the last fault. On Azure, others
	// may have to wait for a minute after a lease has ended.
	grantTimeout = 2 * time.Minute
	// shutdownTimeout is how long all processes together may take to end normally.
	shutdownTimeout = 90 * time.Second
	// checkTimeout is how long the check of one register may take.
	checkTimeout = 5 * time.Minute
)

// run injects faults into a backend and its clients for a while, and checks the history.
func run(t *testing.T, start func(*testing.T, *history.Recorder) *backend, duration time.Duration, seed, stream uint64) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, rec)
	store, err := workload.NewStore(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	group := startClients(t, rec, store, dir, b)
	awaitGrant(t, store, "at the start")
	injectFaults(t, b, group, duration, seed, stream)
	awaitGrant(t, store, "after the last fault")
	terminateAll(t, group)
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	checkHistory(t, b, dir, duration, seed)
}

// maxClientInterval is the longest time between two faults of the same clients.
const maxClientInterval = 5 * time.Second

// injectFaults runs three fault injectors: one for the servers, and one for each half of the
// clients.
func injectFaults(t *testing.T, b *backend, group *clientGroup, duration time.Duration, seed, stream uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	half := len(group.clients) / 2
	var injectors sync.WaitGroup
	for i, s := range []faultInjector{
		{faults: b.faults, maxInterval: b.maxInterval},
		{faults: clientFaults(group.clients[:half], b.ttl), maxInterval: maxClientInterval},
		{faults: clientFaults(group.clients[half:], b.ttl), maxInterval: maxClientInterval},
	} {
		s.t, s.rec, s.random = t, group.rec, rand.New(rand.NewPCG(seed, stream*10+uint64(i)))
		injectors.Go(func() { s.run(ctx) })
	}
	injectors.Wait()
}

// awaitGrant waits until the lock is granted again, which shows that it is not stuck.
func awaitGrant(t *testing.T, store *workload.Store, when string) {
	t.Helper()
	began, token := time.Now(), store.LastToken()
	for store.LastToken() == token {
		if time.Since(began) > grantTimeout {
			t.Errorf("%s the lock was not granted for %v", when, grantTimeout)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%s the lock was granted within %v", when, time.Since(began).Round(time.Millisecond))
}

// terminateAll ends all clients normally, at the same time.
func terminateAll(t *testing.T, group *clientGroup) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), shutdownTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range group.clients {
		all.Go(func() {
			if err := c.process.Terminate(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// checkHistory checks the history and prints the summary.
func checkHistory(t *testing.T, b *backend, dir string, duration time.Duration, seed uint64) {
	lines, err := history.LoadLines(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.Merge(lines)
	if err != nil {
		t.Fatal(err)
	}
	r := registers.Check(h, checkTimeout)
	fmt.Printf("\nchaos on %s: %v, seed %d, TTL %v, %d processes\n%s\n", b.name, duration, seed, b.ttl, clientCount, r)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if minGrants := max(5, int(duration/b.grants)); r.Grants < minGrants {
		t.Errorf("%d grants are too few for a meaningful result; want at least %d", r.Grants, minGrants)
	}
	if r.Holders < 3 {
		t.Errorf("only %d clients ever held the lock", r.Holders)
	}
	if len(h.Faults) == 0 {
		t.Error("there was no fault")
	}
	if !t.Failed() {
		return
	}
	saved, err := saveArtifacts(fmt.Sprintf("chaos-%s-seed-%d", b.name, seed), dir, lines, r)
	fmt.Printf("chaos on %s: the history is in %s\n", b.name, saved)
	if err != nil {
		t.Error(err)
	}
}

// saveArtifacts stores a failing history and the logs of the processes.
func saveArtifacts(name, dir string, lines []history.Line, r *history.Report) (string, error) {
	folder := os.Getenv(registers.EnvArtifacts)
	if folder == "" {
		folder = filepath.Join("..", "..", ".cache", "artifacts")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	saved, err := registers.Save(folder, name, lines, r)
	if err != nil {
		return saved, err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(saved, filepath.Base(log)), b, 0o600)
		}
		if err != nil {
			return saved, err
		}
	}
	return saved, err
}
