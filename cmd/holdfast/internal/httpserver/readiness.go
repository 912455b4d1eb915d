package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
)

// readinessAge is how long an answer of the backend counts for further probes.
const readinessAge = time.Second

// answerTimeout bounds the request to the backend that several callers may share.
const answerTimeout = 30 * time.Second

// Readiness finds out whether the backend answers. Anybody who can reach the address may ask, so probes
// share one request, and its answer for a moment.
type Readiness struct {
	Context context.Context             // whose end ends the request
	Inspect func(context.Context) error // asks the backend

	mu     sync.Mutex
	latest *readinessAnswer
}

// readinessAnswer is complete when done is closed.
type readinessAnswer struct {
	done chan struct{}
	at   time.Time
	err  error
}

// ask returns nil if the backend answers.
func (r *Readiness) ask(ctx context.Context) error {
	answer, mine := r.current()
	if mine {
		go r.read(answer) // Wait waits for it; a caller with less time than answerTimeout does not
	}
	select {
	case <-answer.done:
		return answer.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// current returns the answer to wait for, and whether the caller has to read it.
func (r *Readiness) current() (answer *readinessAnswer, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != nil {
		select {
		case <-r.latest.done:
			mine = time.Since(r.latest.at) >= readinessAge
		default: // a request is under way
		}
	}
	if r.latest == nil || mine {
		r.latest, mine = &readinessAnswer{done: make(chan struct{})}, true
	}
	return r.latest, mine
}

// read asks the backend. Others may want the answer, so it is read even if this caller is gone. A driver that panics has not
// answered: outside a handler its panic would end the process.
func (r *Readiness) read(answer *readinessAnswer) {
	ctx, cancel := context.WithTimeout(r.Context, answerTimeout)
	defer cancel()
	event.CallUser(func() error { return r.Inspect(ctx) }, func(ended event.Result) {
		answer.err, answer.at = ended.Err, time.Now()
		close(answer.done)
	})
}

// Wait waits for the end of the request that is under way.
func (r *Readiness) Wait() {
	r.mu.Lock()
	latest := r.latest
	r.mu.Unlock()
	if latest != nil {
		<-latest.done
	}
}

// Answer answers a probe.
func (r *Readiness) Answer(w http.ResponseWriter, request *http.Request) {
	if err := r.ask(request.Context()); err != nil {
		http.Error(w, "the backend does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
