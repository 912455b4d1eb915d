package partitions

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
)

// work is a partition that this instance has: its hold, and the function's goroutine.
type work struct {
	s         *sharing
	partition int
	hold      *engine.Hold
	order     uint64 // larger than of what was taken before; 0: others could not take it
}

// begin starts work on a partition.
func (s *sharing) begin(partition int, h *engine.Hold, extra bool) {
	s.mu.Lock()
	w := &work{s: s, partition: partition, hold: h}
	if !extra {
		s.taken++
		w.order = s.taken
	}
	s.owned[partition] = w
	s.mu.Unlock()
	s.works.Go(w.run)
}

// live lists the partitions that are this instance's now.
func (s *sharing) live() []*work {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*work
	for _, w := range s.owned {
		if w.hold.Err() == nil {
			out = append(out, w)
		}
	}
	return out
}

// giveBack ends the partition's context; the rest follows when the function returns.
func (w *work) giveBack() { w.hold.Cancel(ErrReassigned) }

// run calls the function until the partition is no longer to be worked on.
func (w *work) run() {
	defer w.end() // also if the function panics
	c, restart := w.s.client, w.s.settings.restart
	for failures := 0; w.hold.Err() == nil; failures++ {
		began := c.Now()
		err := w.s.fn(w.hold.Context(), w.partition)
		ended := w.hold.Err()
		if err == nil || ended != nil {
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ended) {
				w.hold.Report(event.Error, "task", err)
			}
			break
		}
		w.hold.Report(event.Error, "task", err)
		if c.Now()-began > restart.Max {
			failures = 0
		}
		w.sleep(clock.Backoff(failures, restart.Initial, restart.Max))
	}
	<-w.hold.Context().Done()
}

// sleep waits, at most until the partition's context ends.
func (w *work) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.hold.Context().Done():
	}
}

// end releases the lock. Until then nobody else can have been granted it, and this
// instance does not try to.
func (w *work) end() {
	s := w.s
	s.releases <- struct{}{}
	w.hold.Finish(w.hold.Context())
	<-s.releases
	s.mu.Lock()
	delete(s.owned, w.partition)
	s.mu.Unlock()
	if !errors.Is(context.Cause(w.hold.Context()), ErrReassigned) {
		s.rouse() // it was lost: it may be free
	}
}
