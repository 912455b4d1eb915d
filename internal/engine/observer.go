package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// observerBacklog is how many events may wait for one slow observer. For each name of a
// LeaseManager, eventsPerName more may wait, since thousands of names can be acquired or lost at
// once.
const (
	observerBacklog = 1024
	eventsPerName   = 4
)

// observer calls a user's function for each event, in order, on a goroutine that exists only
// while there are events. So a slow or panicking function delays no lease.
type observer struct {
	notify  func(event.Event)
	workers *worker.Group // for its goroutine
	logger  *slog.Logger
	names   *atomic.Int64 // of all LeaseManagers

	mu      sync.Mutex
	backlog []event.Event
	limit   int  // of the backlog: it only grows
	dropped int  // events since the latest one in the backlog
	busy    bool // its goroutine exists
}

// emit adds an event to the backlog, or drops it if the backlog is full.
func (o *observer) emit(e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = max(o.limit, observerBacklog+eventsPerName*int(o.names.Load())) // names that are removed still cause events
	if len(o.backlog) >= o.limit {
		o.dropped++
		return
	}
	e.Dropped, o.dropped = o.dropped, 0
	o.backlog = append(o.backlog, e)
	if !o.busy {
		o.busy = o.workers.Go(o.drain)
	}
}

// drain calls notify for each event of the backlog.
func (o *observer) drain() {
	returned := false
	defer func() {
		if !returned { // notify ended the goroutine, as t.FailNow does: go on with another
			o.mu.Lock()
			o.busy = o.workers.Go(o.drain)
			o.mu.Unlock()
		}
	}()
	for {
		o.mu.Lock()
		if len(o.backlog) == 0 {
			o.backlog, o.busy = nil, false
			o.mu.Unlock()
			returned = true
			return
		}
		e := o.backlog[0]
		o.backlog = o.backlog[1:]
		o.mu.Unlock()
		event.Call(o.logger, o.notify, e)
	}
}
