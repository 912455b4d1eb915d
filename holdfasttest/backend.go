// Package holdfasttest tests how a program reacts to what happens to its locks: a lock is lost in
// the middle of the work, a paused process notices that late and still writes, the backend is slow
// or away, another process takes over.
//
// A [Backend] keeps locks in memory. Its clients are real clients with the real renewals and
// deadlines, each for a process of its own:
//
//	func TestWorkerStopsAfterLoss(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			b := holdfasttest.New(t)
//			done := make(chan error, 1)
//			go func() { done <- b.Client().Do(t.Context(), "billing", work) }()
//			synctest.Wait() // work runs now
//			b.Lose("billing")
//			select {
//			case err := <-done: // want holdfast.ErrLost
//			case <-time.After(5 * time.Second): // the grace
//				t.Fatal("the worker still runs")
//			}
//		})
//	}
//
// Everything goes by the time of the test. In a [testing/synctest] bubble hours pass at once. Call
// [New] inside the bubble. Without a bubble the tests take real time, and need a short TTL:
// holdfasttest.New(t, holdfast.WithTTL(time.Second)).
//
// At the end of the test all faults end, and all clients are shut down. The test fails if a
// client's functions do not return within [ShutdownLimit]. Wrong use fails the test, too.
//
// A test that waits for work that never returns does not come to its end. So wait for it with a time
// limit, as above.
package holdfasttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/faulty"
)

// ShutdownLimit is how long the end of a test waits for the clients.
const ShutdownLimit = 10 * time.Second

// Backend keeps the locks of one test. Methods that return something must be called by the test's
// own goroutine, and all others may be called by any.
type Backend struct {
	Faults // of all processes

	start time.Time
	opts  []holdfast.ClientOption
	store *memory.Store
	admin *memory.Locker // without faults
	log   *logWriter

	mu        sync.Mutex
	processes map[string]*Process
	numbers   map[string]int // of processes that the test does not name
	losses    []*lossAt
}

// lossAt is a loss that is to happen at the n-th renewal, or the n-th step.
type lossAt struct {
	method, name string
	n, seen      int
}

// New makes a backend without locks. The options are for the clients of all processes.
func New(tb testing.TB, opts ...holdfast.ClientOption) *Backend {
	tb.Helper()
	store := memory.NewStore()
	b := &Backend{
		Faults: Faults{tb: tb}, start: time.Now(), opts: opts, store: store, admin: store.Locker(),
		log: &logWriter{w: tb.Output()}, processes: map[string]*Process{}, numbers: map[string]int{},
	}
	b.healed = func() {
		for _, p := range b.all() {
			p.wakeMissed()
		}
	}
	tb.Cleanup(b.close)
	return b
}

// Client returns the client of another process, which has no name. The options come after those of
// [New].
func (b *Backend) Client(opts ...holdfast.ClientOption) *holdfast.Client {
	b.tb.Helper()
	return b.unnamed("process", b.store.Locker(), opts).client
}

// Process returns the process of a name, with a client of its own. The first call makes it, with
// options that come after those of [New]; further calls have no options. The name is also the
// owner of its locks.
func (b *Backend) Process(name string, opts ...holdfast.ClientOption) *Process {
	b.tb.Helper()
	b.mu.Lock()
	p := b.processes[name]
	b.mu.Unlock()
	if p == nil {
		return b.process(name, b.store.Locker(), opts)
	}
	if len(opts) > 0 {
		b.tb.Fatalf("holdfasttest: Process(%q) has options, but exists already: give them in the first call", name)
	}
	return p
}

// unnamed makes a process that the test does not name.
func (b *Backend) unnamed(kind string, locker driver.Locker, opts []holdfast.ClientOption) *Process {
	b.tb.Helper()
	b.mu.Lock()
	b.numbers[kind]++
	name := fmt.Sprint(kind, " ", b.numbers[kind])
	b.mu.Unlock()
	return b.process(name, locker, opts)
}

func (b *Backend) process(name string, locker driver.Locker, opts []holdfast.ClientOption) *Process {
	b.tb.Helper()
	// The clock of a bubble begins in the year 2000. Wall clocks: monotonic readings do not compare.
	if time.Now().Round(0).Before(b.start.Round(0).AddDate(-1, 0, 0)) {
		b.tb.Fatal("holdfasttest: New was called outside of the synctest bubble: call it inside")
	}
	p := newProcess(b, name, locker, opts)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes[name] = p
	return p
}

func (b *Backend) all() (list []*Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.processes {
		list = append(list, p)
	}
	return list
}

// Holder returns the owner of a lock by the backend's records, or "" if nobody holds it. A holder
// that was killed or does not renew holds its lock until the lease expires. For a lock with slots,
// the name is that of the slot's record. Of several readers it is the latest.
func (b *Backend) Holder(name string) string {
	b.tb.Helper()
	r := b.record(name)
	if n := len(r.Holders); n > 0 {
		return r.Holders[n-1].Owner // the latest grant may be that of a reader that has gone
	}
	return r.Owner
}

// record returns the record of a held lock, or one with only the State.
func (b *Backend) record(name string) driver.Record {
	b.tb.Helper()
	r, err := b.admin.Inspect(context.Background(), name)
	if err != nil {
		b.tb.Errorf("holdfasttest: %v", err)
	}
	if r.State != driver.StateHeld {
		return driver.Record{State: r.State}
	}
	return r
}

// Lose makes the holder of a lock lose it, or all readers that share it: the backend answers the next renewal that the lease is
// lost, and the holder renews at once. Lose returns when the hold's context has ended. It does not wait
// if the holder's process is paused or cannot reach the backend: then the holder notices afterwards,
// at its next renewal or its deadline.
//
// As after [holdfast.Client.Break], others get the lock when the work has returned and released it,
// or when the lease has expired.
func (b *Backend) Lose(name string) {
	b.tb.Helper()
	r := b.record(name)
	if r.State != driver.StateHeld {
		b.tb.Errorf("holdfasttest: Lose(%q): nobody holds the lock", name)
		return
	}
	// The holds are looked up before the break: a renewal that is due in this moment may end one right after that.
	var known, reached []*engine.Hold
	for _, p := range b.all() {
		for _, h := range p.engine().HoldsOf(name) {
			if h.Token() != r.Token && !slices.ContainsFunc(r.Holders, func(o driver.Holder) bool { return o.Token == h.Token() }) {
				continue // another has it by now
			}
			known = append(known, h)
			if p.connected() {
				reached = append(reached, h)
			}
		}
	}
	if len(known) == 0 {
		b.tb.Errorf("holdfasttest: Lose(%q): the lock is held, but no client knows it: its holder %q was killed or has lost it already", name,
			r.Owner)
		return
	}
	if err := b.admin.Break(context.Background(), name, driver.BreakAnybody()); err != nil {
		b.tb.Errorf("holdfasttest: Lose(%q): %v", name, err)
		return
	}
	for _, h := range reached {
		h.RenewNow()
	}
	for _, h := range reached {
		select {
		case <-h.Context().Done():
		case <-b.tb.Context().Done():
		}
	}
}

// LoseAtRenewal makes the holder lose a lock at its n-th renewal from now. The renewals of all
// holders of the lock count. The test fails if it ends before.
func (b *Backend) LoseAtRenewal(name string, n int) {
	b.tb.Helper()
	b.loseAt("LoseAtRenewal", name, n)
}

// LoseAtStep returns a function for the work to call at each of its steps, such as its writes. In
// the n-th call the lock is lost as by [Backend.Lose]. The test fails if it ends before.
func (b *Backend) LoseAtStep(name string, n int) (step func()) {
	b.tb.Helper()
	at := b.loseAt("LoseAtStep", name, n)
	return func() {
		b.tb.Helper()
		if at != nil && b.reached(at) {
			b.Lose(name)
		}
	}
}

func (b *Backend) loseAt(method, name string, n int) *lossAt {
	b.tb.Helper()
	if n < 1 {
		b.tb.Errorf("holdfasttest: %s(%q, %d): want a number of 1 or more", method, name, n)
		return nil
	}
	at := &lossAt{method: method, name: name, n: n}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.losses = append(b.losses, at)
	return at
}

// reached counts one more and reports whether it is the n-th.
func (b *Backend) reached(at *lossAt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at.seen++
	return at.seen == at.n
}

// renewed is called before each renewal that reaches the backend.
func (b *Backend) renewed(name string) {
	b.mu.Lock()
	losses := b.losses
	b.mu.Unlock()
	for _, at := range losses {
		if at.method == "LoseAtRenewal" && at.name == name && b.reached(at) {
			if err := b.admin.Break(context.Background(), name, driver.BreakAnybody()); err != nil {
				b.tb.Errorf("holdfasttest: %v", err)
			}
		}
	}
}

// TakeOver grants a lock to another process, whoever holds it, and returns the new hold, with a
// greater token. The present holder notices at its next renewal, at the latest after a third of its
// TTL, or when its process is resumed. Until then there are two holders: this is what tokens are
// for.
func (b *Backend) TakeOver(name string) *holdfast.Hold {
	b.tb.Helper()
	p := b.unnamed("successor", seizing{b.store.Locker()}, nil)
	h, err := p.client.TryLock(b.tb.Context(), name)
	if err != nil {
		b.tb.Fatalf("holdfasttest: TakeOver(%q): %v", name, err)
	}
	if h.Lease().Mode == driver.Shared {
		b.tb.Fatalf("holdfasttest: TakeOver(%q): the options of New have WithShared, and a reader takes nothing over", name)
	}
	return h
}

// StaleHold returns two holds of a free lock: that of a paused process, which has not noticed that
// its lease has ended, and that of its successor, with a greater token. Whatever the stale holder
// writes must be refused.
func (b *Backend) StaleHold(name string) (stale, current *holdfast.Hold) {
	b.tb.Helper()
	p := b.unnamed("stale holder", b.store.Locker(), nil)
	stale, err := p.client.TryLock(b.tb.Context(), name)
	if err != nil {
		b.tb.Fatalf("holdfasttest: StaleHold(%q): the lock must be free: %v", name, err)
	}
	p.Pause()
	return stale, b.TakeOver(name)
}

// seizing is a Locker that takes locks over from their holders.
type seizing struct{ *memory.Locker }

// TryAcquire implements [driver.Locker].
func (s seizing) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	for {
		r, err := s.Inspect(ctx, req.Name)
		if err != nil {
			return driver.Lease{}, err
		}
		if r.State == driver.StateHeld {
			req.Replace = r.Revision
		}
		l, err := s.Locker.TryAcquire(ctx, req)
		if held := (*driver.HeldError)(nil); !errors.As(err, &held) || ctx.Err() != nil {
			return l, err
		} // it was renewed or released meanwhile
	}
}

// fault chooses what happens to a call of a process.
func (b *Backend) fault(p *Process, op string, lease driver.Lease) faulty.Fault {
	if p.killed() {
		return faulty.Fault{Refuse: &driver.OpError{Op: op, Backend: backendName, Name: lease.Name, Err: errKilled}}
	}
	f := p.add(b.add(faulty.Fault{}, op, lease.Name), op, lease.Name)
	if op == faulty.OpRenew && f.Refuse == nil && !f.Hang {
		b.renewed(lease.Name)
	}
	return f
}

// close ends the faults, shuts the clients down, and reports losses that did not happen.
func (b *Backend) close() {
	b.Heal()
	var wg sync.WaitGroup
	for _, p := range b.all() {
		p.Heal()
		if !p.killed() {
			wg.Go(p.shutDown)
		}
	}
	wg.Wait()
	b.log.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.losses {
		if at.seen < at.n && !b.tb.Failed() && !b.tb.Skipped() {
			b.tb.Errorf("holdfasttest: %s(%q, %d): the lock was not lost, because it came only to number %d", at.method, at.name, at.n, at.seen)
		}
	}
}

// logWriter writes to a test's output until the test's end.
type logWriter struct {
	mu sync.Mutex
	w  interface{ Write(p []byte) (int, error) }
}

// Write implements io.Writer.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		return len(p), nil
	}
	return l.w.Write(p)
}

func (l *logWriter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = nil
}
