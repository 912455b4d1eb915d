//go:build unix

package workload_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

func TestMain(m *testing.M) {
	workload.MainIfConfigured()
	goleak.VerifyTestMain(m)
}

const ttl = 2 * time.Second

// crew is some processes at work, and what they work with.
type crew struct {
	t       *testing.T
	dir     string
	rec     *history.Recorder
	config  workload.Config
	members []*workload.Process
}

func start(t *testing.T, url string, clients int) *crew {
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
	c := &crew{t: t, dir: dir, rec: rec, config: workload.Config{Dir: dir, Store: store.URL(), URL: url, Lock: "work", TTL: ttl,
		Waiters: 2, Hold: 100 * time.Millisecond, Between: 50 * time.Millisecond, Poll: 20 * time.Millisecond}}
	for client := range clients {
		c.add(client)
	}
	return c
}

func (c *crew) add(client int) {
	c.t.Helper()
	c.config.Client, c.config.Process = client, len(c.members)+1
	p, err := workload.Start(c.config, c.rec)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Kill)
	c.members = append(c.members, p)
}

// until waits until the history so far is as wanted.
func (c *crew) until(what string, done func(*history.History) bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		h, err := history.Load(c.dir)
		if err != nil {
			c.t.Fatal(err)
		}
		if done(h) {
			return
		}
	}
	c.t.Fatalf("no %s within a minute", what)
}

// end has all processes end in order, and checks what they did.
func (c *crew) end() *history.Report {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for _, p := range c.members {
		if p.Running() {
			if err := p.Terminate(ctx); err != nil {
				c.t.Error(err)
			}
		}
	}
	if err := c.rec.Close(); err != nil {
		c.t.Error(err)
	}
	h, err := history.Load(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	r := history.Check(h, time.Minute)
	c.t.Logf("\n%s", r)
	return r
}

// grants waits for some grants, to some client or, with -1, to any.
func (c *crew) grants(client, n int) {
	c.t.Helper()
	have := func(h *history.History) (n int) {
		for _, hold := range h.Holds {
			if hold.Client == client || client < 0 {
				n++
			}
		}
		return n
	}
	before := -1
	c.until("more grants", func(h *history.History) bool {
		if before < 0 {
			before = have(h)
		}
		return have(h) >= before+n
	})
}

// Processes are killed and stopped, and the lock holds.
func TestWork(t *testing.T) {
	t.Parallel()
	c := start(t, "file:"+t.TempDir(), 4)
	c.grants(-1, 20)
	c.members[0].Kill()
	c.add(0)
	if err := c.members[1].Stop(); err != nil {
		t.Fatal(err)
	}
	c.grants(2, 2)
	time.Sleep(ttl) // stopped for longer than its lease, should it have one
	if err := c.members[1].Continue(); err != nil {
		t.Fatal(err)
	}
	for client := range 4 {
		c.grants(client, 2)
	}
	r := c.end()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Grants < 20 || r.Holders != 4 || r.Updates < r.Grants || r.Operations < r.Grants {
		t.Error("too little was done")
	}
}

// A backend that excludes no other process is found out, by each check on its own.
func TestNoLock(t *testing.T) {
	t.Parallel()
	c := start(t, "mem:", 3)
	for client := range 3 {
		c.grants(client, 20)
	}
	r := c.end()
	for _, rule := range []history.Rule{history.NoOverlap, history.NoSureOverlap, history.NoLost} {
		if r.Count(rule) == 0 {
			t.Errorf("%s: none found", rule)
		}
	}
	for _, rule := range []history.Rule{history.NoStale, history.Linearizable, history.NoLeak} {
		if n := r.Count(rule); n != 0 {
			t.Errorf("%s: %d, with registers that are fenced without fault", rule, n)
		}
	}
}

func TestNotConfigured(t *testing.T) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	p, err := workload.Start(workload.Config{Dir: dir, Process: 1}, rec) // no times
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for end := time.Now().Add(time.Minute); p.Running(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it works without a configuration")
		}
	}
	if err := p.Terminate(t.Context()); err == nil {
		t.Error("its failure is not told")
	}
	if b, err := os.ReadFile(dir + "/process-0001.log"); err != nil || len(b) == 0 {
		t.Errorf("nothing in its log: %v", err)
	}
}
