package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// maxRequests is how many requests are under way at a time. client-go keeps 25 idle connections: with more requests each of the others
// would cost a handshake.
const maxRequests = 24

// send makes a request and notes the time of the answer. An answer says that nothing was done if its status is 401 or 429.
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
	return answer, err
}

func (s *store) sendOnce(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	if err := s.hold.wait(ctx); err != nil {
		return httpstore.Answer{}, err
	}
	sent := s.clocks.elapsed()
	answer, err := s.requests.Send(ctx, r)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// What has cut this connection has perhaps cut the idle ones too, of which each would take as long to find out.
			s.closeIdle()
		}
		return answer, err
	}
	s.clocks.note(answer.Now(), sent)
	s.hold.note(answer)
	return answer, nil
}

// hold holds requests back for as long as the API server has asked for: it refuses what is too much for it (429), or is about to stop.
type hold struct {
	mu    sync.Mutex
	until time.Time
}

// longestHold bounds what an answer asks for, which is 1 s mostly: a renewal must not wait until its lease has ended.
const longestHold = 2 * time.Second

func (h *hold) note(answer httpstore.Answer) {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.Done() || err != nil || seconds <= 0 {
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
