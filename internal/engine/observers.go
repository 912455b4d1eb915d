package engine

import (
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Emit reports an event.
type Emit = func(event.Event)

// observerBacklog is how many events may wait for one slow observer. For each name of a
// LeaseManager, eventsPerName more may wait, since thousands of names can be acquired or lost at
// once.
const (
	observerBacklog = 1024
	eventsPerName   = 4
)

// observers reports events to the observers, and has the goroutines that call them.
type observers struct {
	worker.Group
	all      []*event.Observer // that are notified of every event; the first one logs
	logger   *slog.Logger
	hook     telemetry.Hook // or nil
	names    atomic.Int64   // of all LeaseManagers
	dropped  atomic.Int64   // events that were dropped, and not reported to the hook yet
	returned atomic.Int64   // calls of observers
}

// Returned notes that a call of an observer has returned.
func (o *observers) Returned() { o.returned.Add(1) }

// emitTo returns a function that reports events to the observers of every event, and to these.
func (o *observers) emitTo(more []*event.Observer) Emit {
	all := slices.Concat(o.all, more)
	return func(e event.Event) {
		limit := observerBacklog + eventsPerName*int(o.names.Load())
		for _, observer := range all {
			if !observer.Emit(e, limit, o, o.logger) && o.hook != nil {
				o.noteDropped()
			}
		}
	}
}

// log reports an event to the log alone.
func (o *observers) log(e event.Event) { o.all[0].Emit(e, observerBacklog, o, o.logger) }

// noteDropped reports to the hook that an event was dropped. A goroutine of its own calls the hook,
// because an event may be reported while a mutex is held.
func (o *observers) noteDropped() {
	if o.dropped.Add(1) > 1 {
		return // the goroutine that exists reports this one, too
	}
	o.Go(func() {
		for left := int64(1); left > 0; left = o.dropped.Add(-1) {
			o.hook.Dropped()
		}
	})
}
