package event

import (
	"log/slog"
	"sync"
)

// Observer calls a user's function for each event, in order, on a goroutine that exists only while
// there are events. So a slow or panicking function delays no lease. One Observer stands for one
// option, whatever it is given to: the function is never called by two goroutines at once.
type Observer struct {
	notify func(Event)

	mu      sync.Mutex
	backlog []Event
	limit   int  // of the backlog: it only grows
	dropped int  // events since the latest one in the backlog
	busy    bool // its goroutine exists
}

// NewObserver makes an observer; nil for a nil function.
func NewObserver(notify func(Event)) *Observer {
	if notify == nil {
		return nil
	}
	return &Observer{notify: notify}
}

// Runner runs the functions of observers.
type Runner interface {
	// Go runs a function on a goroutine of its own, unless it returns false.
	Go(fn func()) bool
	// Returned is called after each call of a user's function.
	Returned()
}

// Emit adds an event to the backlog, or drops it if limit events wait already. Emit reports whether
// the event was added.
func (o *Observer) Emit(e Event, limit int, runner Runner, logger *slog.Logger) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = max(o.limit, limit) // names that are removed still cause events
	if len(o.backlog) >= o.limit {
		o.dropped++
		return false
	}
	e.Dropped, o.dropped = o.dropped, 0
	o.backlog = append(o.backlog, e)
	if !o.busy {
		o.busy = runner.Go(func() { o.drain(runner, logger) })
	}
	return true
}

// drain calls notify for each event of the backlog. Each call has a goroutine of its own, because notify may end that, as
// t.FailNow does: the next event follows, also while Shutdown lets nothing else begin.
func (o *Observer) drain(runner Runner, logger *slog.Logger) {
	for {
		o.mu.Lock()
		if len(o.backlog) == 0 {
			o.backlog, o.busy = nil, false
			o.mu.Unlock()
			return
		}
		e := o.backlog[0]
		o.backlog = o.backlog[1:]
		o.mu.Unlock()
		called := make(chan struct{})
		go func() {
			defer close(called)
			Call(logger, o.notify, e)
		}()
		<-called
		runner.Returned()
	}
}
