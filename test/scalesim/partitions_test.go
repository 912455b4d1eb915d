package scalesim

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	name    string
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

func newGroup(tb testing.TB, b *backend, name string, n int) *group {
	return &group{tb: tb, backend: b, name: name, n: n}
}

// join starts instances at the same time.
func (g *group) join(count int) {
	g.tb.Helper()
	for range count {
		in := &instance{process: newProcess(g.tb, g.backend, queued), done: make(chan error, 1)}
		p, err := partitions.New(in.Client, g.name, g.n, func(ctx context.Context, _ int) error {
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

// untilEven returns how long it takes until all groups are even, and what that costs.
func untilEven(tb testing.TB, groups ...*group) phase {
	tb.Helper()
	const limit = 10 * time.Minute
	var before, after int64
	for _, g := range groups {
		before += g.moves.Load()
	}
	p := groups[0].backend.measure(func() {
		for begin := time.Now(); slices.ContainsFunc(groups, func(g *group) bool { return !g.even() }); time.Sleep(100 * time.Millisecond) {
			if time.Since(begin) > limit {
				tb.Fatalf("the partitions are not even after %v", limit)
			}
		}
	})
	for _, g := range groups {
		after += g.moves.Load()
	}
	p.moves = after - before
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
		if err := <-in.done; err != nil && !errors.Is(err, context.Canceled) {
			g.tb.Error(err)
		}
		in.end(g.tb)
	}
}

// TestPartitionsOfManyInstances follows groups through their life: all instances start, nothing
// happens, one instance joins, one crashes. Each instance belongs to one group.
func TestPartitionsOfManyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, instances, n := size(10, 2), size(100, 10), size(10_000, 1000)
		empty := memoryUsed()
		b := newBackend()
		var groups []*group
		for i := range count {
			g := newGroup(t, b, fmt.Sprint("group ", i), n)
			g.join(instances)
			groups = append(groups, g)
		}
		start := untilEven(t, groups...)
		t.Logf("%d groups, each with %d instances and %d partitions: %v", count, instances, n, start)
		const quiet = 20 * time.Second
		idle := b.measure(func() { time.Sleep(quiet) })
		each := (memoryUsed() - empty) / int64(count*instances)
		t.Logf("idle: %v; %d KiB for each instance", idle, each>>10)
		g := groups[0]
		for _, other := range groups[1:] { // it makes no difference to g
			other.end()
		}
		g.join(1)
		join := untilEven(t, g)
		t.Log("one joins:", join)
		gone := g.all[0]
		gone.crash()
		gone.gone = true
		crash := untilEven(t, g)
		t.Log("one crashes:", crash)
		g.end()
		// Every instance reads all 2n records of its group at the default interval of 5 s, less a fifth.
		if most := int64(6 * count * instances * 2 * n); idle.used.records > most {
			t.Errorf("idle instances read %d records in %v, more than %d", idle.used.records, quiet, most)
		}
		if most := int64(n/instances + 10); join.moves > most || crash.moves > most {
			t.Errorf("%d partitions moved at the join, and %d at the crash; the share of an instance is %d", join.moves, crash.moves, n/instances)
		}
		if start.took > 30*time.Second || join.took > 30*time.Second || crash.took > time.Minute {
			t.Errorf("the groups are even %v after the start, %v after a join, %v after a crash", start.took, join.took, crash.took)
		}
	})
}
