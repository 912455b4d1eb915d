package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
	case ready.Status >= http.StatusInternalServerError,
		ready.Status == http.StatusForbidden && s.hold.starting(s.right(r), s.clocks.Elapsed()):
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
	if answer.Done() {
		s.hold.done(s.right(r))
	}
	s.hold.note(answer)
	return answer, nil
}

// right names the right that a request needs: its method, and its URL without the name of a Lease.
func (s *store) right(r httpstore.Request) string {
	path, _, _ := strings.Cut(r.URL, "?")
	if strings.HasPrefix(path, s.leases()+"/") {
		path = s.lease("")
	}
	return r.Method + " " + path
}

// count notes that a request is sent.
func (s *store) count() {
	if s.sent != nil {
		s.sent()
	}
}

// hold holds requests back for as long as the API server has asked for: it refuses what is too much for it (429), or is about to stop. It
// also knows for how long the server has refused what needs a right, perhaps because it is starting.
type hold struct {
	mu      sync.Mutex
	until   time.Time
	refused map[string]refusals // by right; without those that were granted since
}

// refusals are from the first to the last, by the elapsed clock.
type refusals struct{ first, last time.Duration }

const (
	// maxStart is for how long a server may be starting.
	maxStart = time.Minute
	// forget is after how long another refusal has nothing to do with the one before: perhaps the server starts again.
	forget = 10 * time.Minute
)

// starting notes that a right is refused, and reports whether that may be because the server is starting.
func (h *hold) starting(right string, now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, again := h.refused[right]
	if !again || now-r.last > forget {
		r.first = now
	}
	r.last = now
	if h.refused == nil {
		h.refused = map[string]refusals{}
	}
	h.refused[right] = r
	return now-r.first < maxStart
}

// done notes that the server grants a right. That says nothing of another one: a call whose patch is refused begins with a get that is
// granted.
func (h *hold) done(right string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refused, right)
}

// longestHold bounds what an answer asks for, which is 1 s mostly: a renewal must not wait until its lease has ended.
const longestHold = 2 * time.Second

func (h *hold) note(answer httpstore.Answer) {
	if answer.Done() {
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
