package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// readinessAge is how long an answer of the backend counts for further probes.
const readinessAge = time.Second

// answerTimeout bounds the request to the backend that several callers may share.
const answerTimeout = 30 * time.Second

// Readiness finds out whether the backend answers. Anybody who can reach the address may ask, so probes
// share one request, and its answer for a moment.
type Readiness struct {
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
		go r.read(ctx, answer) // ends with the process or by answerTimeout: a caller with less time does not wait so long
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

// read asks the backend. Others may want the answer, so it is read even if this caller is gone.
func (r *Readiness) read(ctx context.Context, answer *readinessAnswer) {
	defer close(answer.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	answer.err = r.Inspect(ctx)
	answer.at = time.Now()
}

// Answer answers a probe.
func (r *Readiness) Answer(w http.ResponseWriter, request *http.Request) {
	if err := r.ask(request.Context()); err != nil {
		http.Error(w, "the backend does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
