package partitions

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/engine"
)

// work is a partition that this instance holds, and the goroutine that calls the function.
type work struct {
	run       *run
	partition int
	hold      *engine.Hold
	order     uint64 // higher than that of partitions acquired before; 0: beyond the share
}

// begin starts work on a partition.
func (r *run) begin(partition int, h *engine.Hold, beyondShare bool) {
	r.mu.Lock()
	w := &work{run: r, partition: partition, hold: h}
	if !beyondShare {
		r.acquired++
		w.order = r.acquired
	}
	r.works[partition] = w
	r.mu.Unlock()
	calls := &engine.Work{
		Hold: h, Func: func(ctx context.Context) error { return r.fn(ctx, partition) }, Restart: r.settings.restart,
		Ended: w.end, Go: r.goroutines.Go,
	}
	r.goroutines.Go(calls.Do)
}

// live lists the partitions that are this instance's now.
func (r *run) live() []*work {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*work
	for _, w := range r.works {
		if w.hold.Err() == nil {
			out = append(out, w)
		}
	}
	return out
}

// reassign ends the partition's context. The partition is released when the function has returned.
func (w *work) reassign() { w.hold.Cancel(ErrReassigned) }

// end releases the partition when it is no longer to be worked on. Until then this instance does not try to acquire
// it again.
func (w *work) end() {
	<-w.hold.Context().Done()
	r := w.run
	w.waitForPlace()
	defer func() { // also if the driver ends the goroutine
		<-r.releases
		r.mu.Lock()
		delete(r.works, w.partition)
		r.mu.Unlock()
		if !errors.Is(context.Cause(w.hold.Context()), ErrReassigned) {
			r.readSoon() // it was lost, so it may be free
		}
	}()
	w.hold.Finish(w.hold.Context()) // Promise 7: the function has returned; the lease was renewed until now.
}

// lossCheck is shorter than the time that work has to stop after a suspend; see holdfast.WithOverrunHook.
const lossCheck = 50 * time.Millisecond

// waitForPlace waits until the release may begin. Until then the lease is renewed. If it is lost, that is no overrun, however
// long the wait: the function has returned.
func (w *work) waitForPlace() {
	for w.hold.LeaseErr() == nil {
		select {
		case w.run.releases <- struct{}{}:
			return
		case <-time.After(min(w.hold.LostIn(), lossCheck)): // a timer does not count a suspend of the system
		}
	}
	w.hold.StopRenewal()
	w.run.releases <- struct{}{}
}
