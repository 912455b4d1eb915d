package holdfasttest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/faulty"
)

// Process stands for a process of the program under test. It has a client of its own, whose locks
// exclude those of other processes. Its Faults lie between it and the backend.
type Process struct {
	Faults

	backend *Backend
	name    string
	client  *holdfast.Client
	link    *faulty.Locker

	clock   sync.Mutex    // guards the rest; the client reads the time while it holds mutexes of its own
	resumed chan struct{} // closed by Resume; nil unless paused
	frozen  time.Duration // the time of the paused process
	dead    bool
}

var errKilled = errors.New("the test has killed the process")

func newProcess(b *Backend, name string, locker driver.Locker, opts []holdfast.ClientOption) *Process {
	b.tb.Helper()
	p := &Process{Faults: Faults{tb: b.tb}, backend: b, name: name}
	p.healed = p.wakeMissed
	p.link = faulty.New(locker, func(op string, _ int, lease driver.Lease) faulty.Fault { return b.fault(p, op, lease) })
	p.link.Watcher = true
	p.link.Paused = p.paused
	p.link.Silent = func() bool { return !p.connected() }
	all := []holdfast.ClientOption{holdfast.WithElapsed(p.now), holdfast.WithOwner(name),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(b.log, nil)).With("process", name))}
	client, err := holdfast.New(p.link, append(append(all, b.opts...), opts...)...)
	if err != nil {
		b.tb.Fatalf("holdfasttest: process %q: %v", name, err)
	}
	p.client = client
	return p
}

// Name returns the process's name.
func (p *Process) Name() string { return p.name }

// Client returns the process's client.
func (p *Process) Client() *holdfast.Client { return p.client }

func (p *Process) engine() *engine.Client { return bridge.Client(p.client) }

// Hold returns the hold that the process has of a lock, whether by Lock, Do, a runner or another
// part of the library; nil if it has none. For a lock with slots, the name is that of the slot's
// record. Of several readers it is the latest.
func (p *Process) Hold(name string) *holdfast.Hold {
	holds := p.engine().HoldsOf(name)
	if len(holds) == 0 {
		return nil
	}
	hold, _ := bridge.PublicHold(holds[len(holds)-1]).(*holdfast.Hold)
	return hold
}

// AwaitHold waits until the process has a lock, and returns the hold. A hold that is lost does not
// count: directly after [Backend.Lose] AwaitHold waits for the next one. In a bubble of
// [testing/synctest], a hold counts if it still exists 1 ms later, and the function of Do or of a
// runner has begun when AwaitHold returns. Outside of a bubble, AwaitHold returns as soon as there is
// a hold, which may be before that function begins. After two minutes it ends the test.
func (p *Process) AwaitHold(name string) *holdfast.Hold {
	p.tb.Helper()
	const limit = 2 * time.Minute
	for end := time.Now().Add(limit); ; {
		h := p.Hold(name)
		if h != nil && !inBubble() {
			return h // on a busy machine, a short hold can end before a second look
		}
		time.Sleep(time.Millisecond) // in a bubble, it ends when all goroutines have done what they can
		if h != nil && p.Hold(name) == h {
			return h
		}
		if !time.Now().Before(end) {
			p.tb.Fatalf("holdfasttest: process %q does not have the lock %q after %v; its holder is %q", p.name, name, limit, p.backend.Holder(name))
		}
	}
}

// inBubble reports whether the caller runs in a bubble of [testing/synctest], whose time begins with
// the year 2000.
func inBubble() bool {
	return time.Now().Before(time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC))
}

// Pause stops the process as SIGSTOP, a long garbage collection or a moved virtual machine does. Its
// clock stands still, nothing that it sends leaves it, and it receives no answer: its contexts do not
// end, [holdfast.Hold.Err] stays nil, and calls of its client wait for [Process.Resume]. Meanwhile
// its leases expire, and others get its locks.
//
// The test's own goroutines go on. What they do between Pause and Resume stands for what a paused
// process does late: the write that it had begun after it had checked its lock.
func (p *Process) Pause() {
	p.tb.Helper()
	now := p.now()
	p.clock.Lock()
	defer p.clock.Unlock()
	if p.resumed != nil || p.dead {
		p.tb.Errorf("holdfasttest: Pause: process %q is paused or was killed already", p.name)
		return
	}
	p.resumed, p.frozen = make(chan struct{}), now
}

// Resume ends a [Process.Pause]. The clock jumps to the time of the test, and the process notices at
// once what it has lost.
func (p *Process) Resume() {
	p.tb.Helper()
	if !p.resume() {
		p.tb.Errorf("holdfasttest: Resume: process %q is not paused", p.name)
	}
}

func (p *Process) resume() bool {
	p.clock.Lock()
	resumed := p.resumed
	p.resumed = nil
	p.clock.Unlock()
	if resumed == nil {
		return false
	}
	close(resumed)
	p.engine().ClockMoved()
	p.wakeMissed()
	return true
}

// Kill ends the process as a crash does: nothing that it does reaches the backend any more, so its
// locks stay taken until their leases expire. Then its contexts end with the cause
// [holdfast.ErrClosed], and calls of its client return, so that the test's goroutines can end. What
// these still do, a process that crashed does not do.
func (p *Process) Kill() {
	p.tb.Helper()
	p.clock.Lock()
	again := p.dead
	p.dead = true
	p.clock.Unlock()
	if again {
		p.tb.Errorf("holdfasttest: Kill: process %q was killed already", p.name)
		return
	}
	p.resume()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()                   // Shutdown does not wait for the work
	_ = p.client.Shutdown(ctx) // the error names what is left
}

// now is the clock of the process.
func (p *Process) now() time.Duration {
	p.clock.Lock()
	defer p.clock.Unlock()
	if p.resumed == nil {
		return time.Since(p.backend.start)
	}
	p.frozen += time.Microsecond // ends loops that wait for less
	return p.frozen
}

func (p *Process) paused() <-chan struct{} {
	p.clock.Lock()
	defer p.clock.Unlock()
	return p.resumed
}

func (p *Process) killed() bool {
	p.clock.Lock()
	defer p.clock.Unlock()
	return p.dead
}

// connected reports whether the process runs and the backend answers it.
func (p *Process) connected() bool {
	return p.paused() == nil && !p.killed() && p.answers() && p.backend.answers()
}

// wakeMissed wakes waiters that missed a wake-up.
func (p *Process) wakeMissed() {
	if p.connected() {
		p.link.WakeMissed()
	}
}

// shutDown ends the process at the end of the test.
func (p *Process) shutDown() {
	p.resume()
	ctx, cancel := context.WithTimeout(context.Background(), ShutdownLimit)
	defer cancel()
	if err := p.client.Shutdown(ctx); err != nil {
		p.tb.Errorf("holdfasttest: process %q: its functions must return at the end of the test: %v", p.name, err)
	}
	p.link.InFlight.Wait(ctx)
}
