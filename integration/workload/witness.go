//go:build unix

package workload

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/history"
)

const (
	// look is how often a witness looks at a hold, and noted how often it writes down
	// what it saw, for the case of a kill -9.
	look  = 2 * time.Millisecond
	noted = 100 * time.Millisecond
	// pulse is how often a process looks whether it gets to run.
	pulse = 10 * time.Millisecond
)

// witness looks at a hold and tells until when it was live. It reads the clock
// before it looks, so what it says is true, however long a step of it takes.
type witness struct {
	rec       *history.Recorder
	id        uint64
	hold      *holdfast.Hold
	at, sure  time.Duration // the latest times at which the context was live, Err nil
	over      chan struct{}
	finish    sync.WaitGroup
	lastNoted time.Duration
}

// watch begins with one look at the hold. The function that it returns ends the
// watching.
func watch(rec *history.Recorder, id uint64, hold *holdfast.Hold) (leave func()) {
	w := &witness{rec: rec, id: id, hold: hold, over: make(chan struct{})}
	if w.look() {
		w.note()
		w.finish.Go(w.run)
	}
	return func() {
		close(w.over)
		w.finish.Wait()
	}
}

func (w *witness) run() {
	tick := time.NewTicker(look)
	defer tick.Stop()
	defer w.note()
	for w.look() {
		if w.at-w.lastNoted > noted {
			w.note()
		}
		select {
		case <-tick.C:
		case <-w.over:
			return
		}
	}
}

// look reports whether the context is live.
func (w *witness) look() bool {
	now := history.Now()
	if w.hold.Context().Err() != nil {
		return false
	}
	w.at = now
	if w.hold.Err() == nil {
		w.sure = now
	}
	return true
}

func (w *witness) note() {
	w.lastNoted = w.at
	w.rec.Record(history.Line{Kind: history.Live, At: w.at, ID: w.id, Token: w.hold.Token(), Sure: w.sure})
}

// feelPulse records when this process did not get to run for longer than limit.
func feelPulse(ctx context.Context, rec *history.Recorder, limit time.Duration) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	last := history.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := history.Now()
		if now-last > limit {
			rec.Record(history.Line{Kind: history.Stall, At: last, Until: now})
		}
		last = now
	}
}
