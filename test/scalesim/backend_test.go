package scalesim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The delay of every call, and the greatest number of leases in one command: those of MongoDB in
// one data center.
const (
	delay     = 2 * time.Millisecond
	batchSize = 500
)

// backend is a store, and counts the commands that reach it.
type backend struct {
	store    *memory.Store
	acquires atomic.Int64
	renewals atomic.Int64 // commands, each for up to batchSize leases
	releases atomic.Int64
	reads    atomic.Int64
	records  atomic.Int64 // in these reads
	wakeUps  atomic.Int64
}

func newBackend() *backend { return &backend{store: memory.NewStore()} }

// usage is what a backend has counted.
type usage struct {
	acquires, renewals, releases, reads int64
	records, wakeUps                    int64
}

func (u usage) commands() int64 { return u.acquires + u.renewals + u.releases + u.reads }

func (u usage) minus(v usage) usage {
	return usage{
		u.acquires - v.acquires, u.renewals - v.renewals, u.releases - v.releases,
		u.reads - v.reads, u.records - v.records, u.wakeUps - v.wakeUps,
	}
}

func (b *backend) usage() usage {
	return usage{b.acquires.Load(), b.renewals.Load(), b.releases.Load(), b.reads.Load(), b.records.Load(), b.wakeUps.Load()}
}

// process is a Client with a link of its own to a backend.
type process struct {
	*holdfast.Client
	link *link
}

// newProcess makes a process whose waiters are woken in this way.
func newProcess(tb testing.TB, b *backend, wake way) *process {
	tb.Helper()
	l := &link{backend: b, wake: wake}
	l.Locker = driver.Intercept(b.store.Locker(), l.intercept)
	start := time.Now()
	c, err := holdfast.New(l, holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) })) // virtual
	if err != nil {
		tb.Fatal(err)
	}
	return &process{c, l}
}

// crash makes every further call of the process hang.
func (p *process) crash() { p.link.cut.Store(true) }

// end shuts a process down, also after a crash.
func (p *process) end(tb testing.TB) {
	tb.Helper()
	p.link.cut.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		tb.Error(err)
	}
}

// way is how waiters are woken.
type way string

const (
	queued  way = "queue" // one after another, in the order of their arrival
	watched way = "watch" // all together
	polls   way = "poll"  // not at all
)

// link is the Locker of a process. It has the capabilities that make waiting and renewing cheap.
type link struct {
	driver.Locker
	backend *backend
	cut     atomic.Bool
	wake    way
}

// pass lets a call through after the delay.
func (l *link) pass(ctx context.Context, calls *atomic.Int64) error {
	if l.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	calls.Add(1)
	time.Sleep(delay)
	return nil
}

func (l *link) intercept(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	b, records := l.backend, 0
	var calls *atomic.Int64
	switch call.Method {
	case driver.MethodTryAcquire:
		calls = &b.acquires
	case driver.MethodRenew:
		calls = &b.renewals
	case driver.MethodRenewBatch:
		a := driver.Answer{Leases: call.Leases}
		for chunk := range slices.Chunk(call.Leases, batchSize) {
			if err := l.pass(ctx, &b.renewals); err != nil {
				a.Errs = append(a.Errs, slices.Repeat([]error{err}, len(chunk))...)
				continue
			}
			call.Leases = chunk
			a.Errs = append(a.Errs, next(ctx, call).Errs...)
		}
		return a
	case driver.MethodRelease, driver.MethodReleaseBatch:
		calls = &b.releases
	case driver.MethodInspect:
		calls, records = &b.reads, 1
	case driver.MethodInspectBatch:
		calls, records = &b.reads, len(call.Names)
	case driver.MethodWake:
		wake := call.Wake
		call.Wake = func(up driver.Wakeup) {
			if !l.cut.Load() {
				b.wakeUps.Add(1)
				wake(up)
			}
		}
		return next(ctx, call)
	default:
		return next(ctx, call)
	}
	if err := l.pass(ctx, calls); err != nil {
		return driver.Answer{Err: err}
	}
	b.records.Add(int64(records))
	return next(ctx, call)
}

func (l *link) Info() driver.Info {
	info := l.Locker.Info()
	info.Limits.Poll = time.Second // that of MongoDB
	return info
}

func (l *link) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Lister = nil
	switch l.wake {
	case watched:
		c.Queue = nil
	case polls:
		c.Waker, c.Queue = nil, nil
	}
	return c
}

// large is whether to simulate as much as a machine has room for.
func large() bool { return os.Getenv("HOLDFAST_SIMULATION") == "large" }

// size returns how many there are in the large simulation, and in the small one.
func size(most, few int) int {
	if large() {
		return most
	}
	return few
}

// phase is what happened in a part of a simulation.
type phase struct {
	took  time.Duration // virtual
	used  usage
	cpu   time.Duration // of this machine, for all processes of the simulation
	moves int64         // partitions on which an instance began to work
}

// measure returns what happens while do runs.
func (b *backend) measure(do func()) phase {
	before, cpu, begin := b.usage(), processCPU(), time.Now()
	do()
	return phase{took: time.Since(begin), used: b.usage().minus(before), cpu: processCPU() - cpu}
}

func (p phase) String() string {
	u := p.used
	return fmt.Sprintf("%v, %d commands (%d acquires, %d renewals, %d releases, %d reads of %d records), %d wake-ups, %d moves, %v CPU",
		p.took.Round(time.Millisecond), u.commands(), u.acquires, u.renewals, u.releases, u.reads, u.records, u.wakeUps, p.moves,
		p.cpu.Round(time.Millisecond))
}

// memoryUsed returns the size of the live objects and stacks.
func memoryUsed() int64 {
	runtime.GC()
	runtime.GC() // frees what the first one has only finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // less than 2^63
}
