//go:build unix

package workload_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/registers"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) {
	workload.MainIfConfigured()
	goleak.VerifyTestMain(m)
}

const ttl = 2 * time.Second

// processGroup is the processes of a test and what they use.
type processGroup struct {
	t         *testing.T
	dir       string
	rec       *history.Recorder
	config    workload.Config
	processes []*workload.Process
}

func start(t *testing.T, url string, clients int) *processGroup {
	t.Helper()
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	store, err := workload.NewStore(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &processGroup{t: t, dir: dir, rec: rec, config: workload.Config{Dir: dir, Store: store.URL(), URL: url, Lock: "work", TTL: ttl,
		Waiters: 2, MaxHold: 100 * time.Millisecond, MaxIdle: 50 * time.Millisecond, Poll: 20 * time.Millisecond}}
	for client := range clients {
		g.add(client)
	}
	return g
}

func (g *processGroup) add(client int) {
	g.t.Helper()
	g.config.Client, g.config.Process = client, len(g.processes)+1
	p, err := workload.Start(g.config, g.rec)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(p.Kill)
	g.processes = append(g.processes, p)
}

// waitLimit only ends a test that hangs.
const waitLimit = 3 * time.Minute

// awaitHistory waits until the history satisfies a condition.
func (g *processGroup) awaitHistory(what string, done func(*history.History) bool) {
	g.t.Helper()
	if !g.within(waitLimit, done) {
		g.t.Fatalf("no %s within %v", what, waitLimit)
	}
}

// within reports whether the history satisfies a condition within a time.
func (g *processGroup) within(limit time.Duration, done func(*history.History) bool) bool {
	g.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		h, err := history.Load(g.dir)
		if err != nil {
			g.t.Fatal(err)
		}
		if done(h) {
			return true
		}
	}
	return false
}

// terminateAndCheck ends all processes normally and checks their history.
func (g *processGroup) terminateAndCheck() *history.Report {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), waitLimit)
	defer cancel()
	for _, p := range g.processes {
		if p.Running() {
			if err := p.Terminate(ctx); err != nil {
				g.t.Error(err)
			}
		}
	}
	if err := g.rec.Close(); err != nil {
		g.t.Error(err)
	}
	h, err := history.Load(g.dir)
	if err != nil {
		g.t.Fatal(err)
	}
	r := registers.Check(h, waitLimit)
	g.t.Logf("\n%s", r)
	return r
}

// awaitGrants waits for n more grants, to one client or, with -1, to any.
func (g *processGroup) awaitGrants(client, n int) {
	g.t.Helper()
	g.awaitHistory("more grants", moreGrants(client, n))
}

// moreGrants is the condition that there have been n more grants since its first call.
func moreGrants(client, n int) func(*history.History) bool {
	have := func(h *history.History) (n int) {
		for _, hold := range h.Holds {
			if hold.Client == client || client < 0 {
				n++
			}
		}
		return n
	}
	before := -1
	return func(h *history.History) bool {
		if before < 0 {
			before = have(h)
		}
		return have(h) >= before+n
	}
}

// stopWhileOthersGoOn stops a process. One that is stopped while it has the lock file keeps all others out,
// so it is stopped again then.
func (g *processGroup) stopWhileOthersGoOn(p *workload.Process, other int) {
	g.t.Helper()
	for range 15 { // on a slow disk a process often has it
		if err := p.Stop(); err != nil {
			g.t.Fatal(err)
		}
		if g.within(10*time.Second, moreGrants(other, 2)) {
			return
		}
		if err := p.Continue(); err != nil {
			g.t.Fatal(err)
		}
		time.Sleep(time.Second) // it releases the lock file
	}
	g.t.Fatal("no more grants while the process is stopped")
}

// Processes are killed and stopped, and the lock still excludes.
func TestLockExcludesUnderFaults(t *testing.T) {
	t.Parallel()
	g := start(t, "file:"+t.TempDir(), 4)
	g.awaitGrants(-1, 20)
	g.processes[0].Kill()
	g.add(0)
	g.stopWhileOthersGoOn(g.processes[1], 2)
	time.Sleep(ttl) // longer than its lease, if it holds one
	if err := g.processes[1].Continue(); err != nil {
		t.Fatal(err)
	}
	for client := range 4 {
		g.awaitGrants(client, 2)
	}
	r := g.terminateAndCheck()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Grants < 20 || r.Holders != 4 || r.Updates < r.Grants || r.Operations < r.Grants {
		t.Error("too little activity")
	}
}

// A lock that does not exclude other processes is detected, by each check independently.
func TestMissingExclusionIsDetected(t *testing.T) {
	t.Parallel()
	g := start(t, "mem:", 3)
	for client := range 3 {
		g.awaitGrants(client, 20)
	}
	r := g.terminateAndCheck()
	for _, rule := range []history.Rule{history.NoOverlap, history.NoErrOverlap, history.NoLostUpdate} {
		if r.Count(rule) == 0 {
			t.Errorf("%s: none found", rule)
		}
	}
	for _, rule := range []history.Rule{history.NoStaleWrite, history.Linearizable, history.NoLeak} {
		if n := r.Count(rule); n != 0 {
			t.Errorf("%s: %d, although the fences of the registers work", rule, n)
		}
	}
}

func TestInvalidConfigIsAnError(t *testing.T) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	p, err := workload.Start(workload.Config{Dir: dir, Process: 1}, rec) // without durations
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	locktest.Eventually(t, "the process ends without a valid configuration", func() bool { return !p.Running() })
	if err := p.Terminate(t.Context()); err == nil {
		t.Error("Terminate does not report the failure")
	}
	if b, err := os.ReadFile(dir + "/process-0001.log"); err != nil || len(b) == 0 {
		t.Errorf("the log is empty: %v", err)
	}
}
