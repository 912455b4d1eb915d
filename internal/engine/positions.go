package engine

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// lane is what the callers that ask for locks in one mode have in common in the backend's queues. Readers and writers of a process are
// two waiters: a grant ends the position of its waiter, so readers that follow one another would keep a writer of their process
// out forever.
type lane struct {
	waiter    driver.WaiterID
	positions positions
	reader    *batchread.Reader // of records with the waiter's positions; nil where the backend does not read in batches
}

// begin makes the lane usable. limit is that of a batch read.
func (l *lane) begin(
	closing, base context.Context, waiter driver.WaiterID, can driver.Capabilities, now func() time.Duration, limit time.Duration,
) {
	l.waiter, l.reader = waiter, batchread.New(closing, can.BatchInspector, waiter, now, limit)
	p := &l.positions
	p.queue, p.waiter, p.now, p.closing, p.base, p.planned = can.Queue, waiter, now, closing, base, make(chan struct{}, 1)
}

// asker is a caller that waits in one of the backend's queues.
type asker interface {
	askAgain() // has it send another request
}

// positions leaves the backend's queues of the locks for which this process no longer waits. One goroutine
// has the calls made, one after another. It runs while there is something to leave.
type positions struct {
	queue   driver.Queue // nil where the backend has none; then nothing is called
	waiter  driver.WaiterID
	now     func() time.Duration
	closing context.Context // ends when Shutdown begins
	base    context.Context // ends when Shutdown gives up
	rounds  worker.Group    // the goroutine that decides when
	calls   worker.Group    // those that call

	mu      sync.Mutex // never held across a call of the backend
	state   waitqueue.Positions[asker]
	running bool

	planned chan struct{} // has a value after end has planned something; its capacity is 1
}

func (p *positions) begin(name string, a asker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Begin(name, a)
}

// note notes an event of a request.
func (p *positions) note(event func(*waitqueue.Positions[asker])) {
	p.mu.Lock()
	defer p.mu.Unlock()
	event(&p.state)
}

func (p *positions) end(name string, a asker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.End(p.now(), name, a)
	if p.state.Idle() {
		return
	}
	if !p.running {
		p.running = p.rounds.Go(p.run)
	}
	notify(p.planned)
}

// run leaves queues until there is nothing more to leave.
func (p *positions) run() {
	for {
		names, wait, ending, more := p.take()
		switch {
		case len(names) > 0:
			p.left(names, p.call(names))
		case !more:
			return
		default:
			p.rest(wait, ending)
		}
	}
}

// call leaves queues. It returns at the latest when the driver should have returned, so that a call that hangs keeps
// neither the others nor the cleanups of Shutdown waiting. A call that it gave up may still remove a later position: when it
// returns, those that wait by then send another request.
func (p *positions) call(names []string) (failed bool) {
	done, err := make(chan struct{}), error(nil)
	p.calls.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(p.base, waitqueue.LeaveTimeout)
		defer cancel()
		err = p.queue.Leave(ctx, p.waiter, names)
	})
	hung := time.NewTimer(timing.Patience(waitqueue.LeaveTimeout))
	defer hung.Stop()
	select {
	case <-done:
		return err != nil && !driver.Lasting(err)
	case <-hung.C:
		p.calls.Go(func() {
			<-done
			p.leftLate(names)
		})
		return false
	}
}

// rest waits for a time, or until something else is planned, or Shutdown begins or gives up. ending says that it had begun before.
func (p *positions) rest(wait time.Duration, ending bool) {
	began := p.closing.Done()
	if ending {
		began = nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.planned: // perhaps for an earlier time
	case <-began:
	case <-p.base.Done():
	}
}

// take returns the names to leave now, or else how long to wait. ending says that Shutdown has begun, more is false if run ends.
func (p *positions) take() (names []string, wait time.Duration, ending, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	ending = p.closing.Err() != nil
	names, next := p.state.Due(now, ending)
	p.running = !p.state.Idle() && p.base.Err() == nil
	return names, max(next-now, time.Millisecond), ending, p.running
}

// left notes that the call for these names has returned, or was given up. Callers whose requests have crossed it send another.
func (p *positions) left(names []string, failed bool) {
	p.mu.Lock()
	lost := p.state.Left(p.now(), names, failed, p.closing.Err() != nil)
	p.mu.Unlock()
	askAgain(lost)
}

// leftLate notes that a call which was given up has returned.
func (p *positions) leftLate(names []string) {
	p.mu.Lock()
	lost := p.state.LeftLate(names)
	p.mu.Unlock()
	askAgain(lost)
}

// askAgain has callers send another request.
func askAgain(lost []asker) {
	for _, a := range lost {
		a.askAgain()
	}
}

// finish waits until the queues are left, or the calls should have returned, and reports whether that was before ctx ended.
func (p *positions) finish(ctx context.Context) bool {
	p.rounds.Close()
	return p.rounds.Wait(ctx)
}
