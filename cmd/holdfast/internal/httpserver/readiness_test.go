package httpserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Probes that come together, or within a second, share one request to the backend.
func TestReadinessIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		failure := errors.New("no answer")
		r := &Readiness{Inspect: func(ctx context.Context) error {
			requests++
			time.Sleep(100 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("the request ends with the probe that has sent it")
			}
			return failure
		}}
		first, leave := context.WithCancel(t.Context())
		var probes sync.WaitGroup
		probes.Go(func() { _ = r.ask(first) })
		synctest.Wait()
		leave()
		for range 10 {
			probes.Go(func() {
				if err := r.ask(t.Context()); !errors.Is(err, failure) {
					t.Errorf("got %v, want the answer of the request under way", err)
				}
			})
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.ask(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("a probe that has ended got %v", err)
		}
		probes.Wait()
		time.Sleep(readinessAge - time.Millisecond)
		_ = r.ask(t.Context())
		if requests != 1 {
			t.Errorf("%d requests, want 1", requests)
		}
		failure = nil
		time.Sleep(time.Millisecond)
		if err := r.ask(t.Context()); err != nil || requests != 2 {
			t.Errorf("after a second: %v and %d requests, want a new answer", err, requests)
		}
	})
}
