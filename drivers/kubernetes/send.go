package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// maxRequests is how many requests are under way at a time. client-go keeps 25 idle connections: with more requests each of the others
// would cost a handshake.
const maxRequests = 24

// send makes a request and notes the time of the answer. An answer says that nothing was done if its status is 401, 403
// or 429.
func (s *store) send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept", "application/json")
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return httpstore.Answer{}, ctx.Err()
	}
	answer, err := s.sendOnce(ctx, r)
	if err == nil && answer.Status == http.StatusUnauthorized {
		// The credential has expired or was replaced. client-go reads its file, or calls the plug-in, for the request after this.
		return s.sendOnce(ctx, r)
	}
	if err == nil && answer.Status == http.StatusForbidden {
		return s.forbidden(ctx, r, answer)
	}
	return answer, err
}

// errStarting is no denial: waiters and holders ride it out.
var errStarting = errors.New("the API server refuses everything, as one does that is starting (403 Forbidden)")

// forbidden finds out what a refusal means. An API server that has just started refuses everything, its /readyz too, until it has read who
// may do what. Somebody may have taken that right away for good, so after a time it counts as a denial.
func (s *store) forbidden(ctx context.Context, r httpstore.Request, refusal httpstore.Answer) (httpstore.Answer, error) {
	ready, err := s.sendOnce(ctx, httpstore.Request{Method: http.MethodGet, URL: s.server + "/readyz"})
	switch {
	case err != nil:
		return httpstore.Answer{}, err
	case ready.Done(): // perhaps only since the refusal
		return s.sendOnce(ctx, r)
	case ready.Status >= http.StatusInternalServerError, ready.Status == http.StatusForbidden && s.hold.starting(s.clocks.Elapsed()):
		return httpstore.Answer{}, fmt.Errorf("%w: %s", errStarting, driver.ErrorText(refusal.Failed(statusOf(refusal).Message)))
	}
	return refusal, nil
}

func (s *store) sendOnce(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	if err := s.hold.wait(ctx); err != nil {
		return httpstore.Answer{}, err
	}
	s.count()
	began := s.clocks.Elapsed()
	answer, err := s.requests.Send(ctx, r)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// What has cut this connection has perhaps cut the idle ones too, of which each would take as long to find out.
			s.closeIdle()
		}
		return answer, err
	}
	s.clocks.Note(answer.Now(), began)
	s.hold.note(answer)
	return answer, nil
}

// count notes that a request is sent.
func (s *store) count() {
	if s.sent != nil {
		s.sent()
	}
}

// hold holds requests back for as long as the API server has asked for: it refuses what is too much for it (429), or is about to stop. It
// also knows for how long a server that is starting has refused everything.
type hold struct {
	mu      sync.Mutex
	until   time.Time
	refused time.Duration // since when everything is refused, by the elapsed clock; 0: it is not
}

// maxStart is for how long a server may be starting.
const maxStart = time.Minute

// starting notes that everything is refused, and reports whether that may be because the server is starting.
func (h *hold) starting(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused == 0 {
		h.refused = max(now, 1)
	}
	return now-h.refused < maxStart
}

// longestHold bounds what an answer asks for, which is 1 s mostly: a renewal must not wait until its lease has ended.
const longestHold = 2 * time.Second

func (h *hold) note(answer httpstore.Answer) {
	if answer.Done() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refused = 0
		return
	}
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return
	}
	until := time.Now().Add(min(longestHold, time.Duration(min(seconds, 60))*time.Second))
	h.mu.Lock()
	defer h.mu.Unlock()
	if until.After(h.until) {
		h.until = until
	}
}

func (h *hold) wait(ctx context.Context) error {
	h.mu.Lock()
	left := time.Until(h.until)
	h.mu.Unlock()
	if left > 0 && !retry.Wait(ctx, left) {
		return ctx.Err()
	}
	return nil
}
