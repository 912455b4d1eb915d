package scalesim

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/partitions"
)

// group is the instances of a group of Partitions.
type group struct {
	tb      testing.TB
	backend *backend
	n       int // partitions
	all     []*instance
	moves   atomic.Int64
}

// instance is one process of a group.
type instance struct {
	*process
	cancel context.CancelFunc
	done   chan error
	works  atomic.Int64 // partitions that its functions work on
	gone   bool
}

func newGroup(tb testing.TB, n int) *group { return &group{tb: tb, backend: newBackend(), n: n} }

// join starts instances at the same time.
func (g *group) join(count int) {
	g.tb.Helper()
	for range count {
		in := &instance{process: newProcess(g.tb, g.backend, false), done: make(chan error, 1)}
		p, err := partitions.New(in.Client, "group", g.n, func(ctx context.Context, _ int) error {
			g.moves.Add(1)
			in.works.Add(1)
			defer in.works.Add(-1)
			<-ctx.Done()
			return nil
		})
		if err != nil {
			g.tb.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		in.cancel = cancel
		g.all = append(g.all, in)
		go func() { in.done <- p.Run(ctx) }()
	}
}

// even reports whether every partition has an owner, and the shares differ by one at most.
func (g *group) even() bool {
	sum, least, most := int64(0), int64(g.n), int64(0)
	for _, in := range g.all {
		if in.gone {
			continue
		}
		n := in.works.Load()
		sum, least, most = sum+n, min(least, n), max(most, n)
	}
	return sum == int64(g.n) && most-least <= 1
}

// untilEven returns how long it takes until the group is even, and what that costs.
func (g *group) untilEven() phase {
	g.tb.Helper()
	const limit = 10 * time.Minute
	moves := g.moves.Load()
	p := g.backend.measure(func() {
		for begin := time.Now(); !g.even(); time.Sleep(100 * time.Millisecond) {
			if time.Since(begin) > limit {
				g.tb.Fatalf("%d partitions are not even after %v", g.n, limit)
			}
		}
	})
	p.moves = g.moves.Load() - moves
	return p
}

// end ends all instances.
func (g *group) end() {
	g.tb.Helper()
	for _, in := range g.all {
		in.cancel()
	}
	for _, in := range g.all {
		in.link.cut.Store(false)
		<-in.done
		in.end(g.tb)
	}
}

// life is the life of a group: all instances start, nothing happens, one joins, one crashes.
type life struct {
	start, idle, join, crash phase
	memory                   int64 // of one instance
}

func runGroup(tb testing.TB, instances, n int) (l life) {
	empty := memoryUsed()
	g := newGroup(tb, n)
	g.join(instances)
	l.start = g.untilEven()
	tb.Log("start:", l.start)
	l.idle = g.backend.measure(func() { time.Sleep(time.Minute) })
	l.memory = (memoryUsed() - empty) / int64(instances)
	tb.Logf("idle: %v; %d KiB for each instance", l.idle, l.memory>>10)
	g.join(1)
	l.join = g.untilEven()
	tb.Log("join:", l.join)
	gone := g.all[0]
	gone.crash()
	gone.gone = true
	l.crash = g.untilEven()
	tb.Log("crash:", l.crash)
	g.end()
	return l
}

func TestPartitionsOfManyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { runGroup(t, size(200, 20), size(20000, 2000)) })
}
