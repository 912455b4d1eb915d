package httpserver

import (
	"context"
	"errors"
	"strings"
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
		r := &Readiness{Context: t.Context(), Inspect: func(ctx context.Context) error {
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

// A driver that panics does not end the process: the panic is a failed answer, for all who wait for it, and a later probe asks again.
func TestReadinessOfADriverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		r := &Readiness{Context: t.Context(), Inspect: func(context.Context) error {
			if broken {
				panic("as the test says")
			}
			return nil
		}}
		for range 2 {
			if err := r.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "as the test says") {
				t.Errorf("got %v, want the panic", err)
			}
		}
		broken = false
		time.Sleep(readinessAge)
		if err := r.ask(t.Context()); err != nil {
			t.Errorf("after the panic: %v", err)
		}
	})
}

// A request whose probe has gone away ends with the server, which waits for it.
func TestReadinessEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serving, stop := context.WithCancel(t.Context())
		ended := false
		r := &Readiness{Context: serving, Inspect: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // a call that takes a moment to end
			ended = true
			return ctx.Err()
		}}
		r.Wait() // there is no request yet
		probe, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		begun := time.Now()
		_ = r.ask(probe)
		stop()
		r.Wait()
		if took := time.Since(begun); !ended || took != 2*time.Second {
			t.Errorf("after %v, the request has ended: %v", took, ended)
		}
	})
}
