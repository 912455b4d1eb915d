package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// observerBacklog is how many events may wait for one slow observer. eventsPerName is how many
// more may for each name of a LeaseManager, since thousands of names can be acquired or lost at
// once.
const (
	observerBacklog = 1024
	eventsPerName   = 4
)

// observer calls a user's function for each event, in order, on a goroutine that exists only
// while there are events: a slow or panicking function delays no lease.
type observer struct {
	notify  func(event.Event)
	workers *worker.Group
	logger  *slog.Logger
	names   *atomic.Int64 // of LeaseManagers

	mu      sync.Mutex
	backlog []event.Event
	limit   int // of the backlog: it only grows
	dropped int
	busy    bool
}

// newObserver makes an observer whose goroutine runs in workers. names counts the names that
// LeaseManagers have.
func newObserver(notify func(event.Event), workers *worker.Group, logger *slog.Logger, names *atomic.Int64) *observer {
	return &observer{notify: notify, workers: workers, logger: logger, names: names}
}

func (s *observer) emit(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(s.limit, observerBacklog+eventsPerName*int(s.names.Load())) // while names go, events come
	if len(s.backlog) >= s.limit {
		s.dropped++
		return
	}
	e.Dropped, s.dropped = s.dropped, 0
	s.backlog = append(s.backlog, e)
	if !s.busy {
		s.busy = s.workers.Go(s.drain)
	}
}

func (s *observer) drain() {
	returned := false
	defer func() {
		if !returned { // the observer ended its goroutine: go on with another
			s.mu.Lock()
			s.busy = s.workers.Go(s.drain)
			s.mu.Unlock()
		}
	}()
	for {
		s.mu.Lock()
		if len(s.backlog) == 0 {
			s.backlog, s.busy = nil, false
			s.mu.Unlock()
			returned = true
			return
		}
		e := s.backlog[0]
		s.backlog = s.backlog[1:]
		s.mu.Unlock()
		event.Call(s.logger, s.notify, e)
	}
}
