package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, newClient(t, memory.New(), holdfast.WithOwner("host/1")))
		probe := func(method string) (*httptest.ResponseRecorder, map[string]any) {
			t.Helper()
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/ready", http.NoBody))
			var body map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil && method == http.MethodGet {
				t.Errorf("body %q: %v", w.Body, err)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" && method == http.MethodGet {
				t.Errorf("Cache-Control %q", got)
			}
			return w, body
		}
		idle := func(when string) {
			t.Helper()
			w, body := probe(http.MethodGet)
			if _, has := body["token"]; w.Code != http.StatusServiceUnavailable || body["leading"] != false || body["name"] != "job" || has {
				t.Errorf("%s: %d %v", when, w.Code, body)
			}
		}
		idle("before")
		done := campaign(t.Context(), r, slowly(time.Minute))
		synctest.Wait()
		w, body := probe(http.MethodGet)
		if w.Code != http.StatusOK || body["leading"] != true || body["owner"] != "host/1" || body["token"] == nil {
			t.Errorf("leading: %d %v", w.Code, body)
		}
		if w, _ := probe(http.MethodHead); w.Code != http.StatusOK {
			t.Errorf("HEAD: %d", w.Code)
		}
		if w, _ := probe(http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("POST: %d, Allow %q", w.Code, w.Header().Get("Allow"))
		}
		go func() { _ = r.Close(context.Background()) }()
		synctest.Wait()
		idle("while the task of a closed runner still runs")
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		idle("after")
	})
}

// IsLeader is for hot paths, and goes by the clock that a program has by default.
func TestIsLeader_AllocatesNothing(t *testing.T) {
	for name, opts := range map[string][]holdfast.ClientOption{
		"default clock": {holdfast.WithLogger(slog.New(slog.DiscardHandler))},
		"test's clock":  {holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithElapsed(func() time.Duration { return time.Second })},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := holdfast.New(memory.New(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Shutdown(context.Background()) }()
			r := newRunner(t, c)
			for _, want := range []bool{false, true} {
				if want {
					mustRun(t, r, nothing, true)
				}
				if n := testing.AllocsPerRun(1000, func() {
					if r.IsLeader() != want {
						t.Errorf("IsLeader: want %v", want)
					}
				}); n != 0 {
					t.Errorf("IsLeader (%v) allocates %v times", want, n)
				}
			}
		})
	}
}

// All methods at once, from many goroutines, on the real clock: for the race detector.
func TestRunner_Concurrency(t *testing.T) {
	store := memory.NewStore()
	check := newExclusive(t)
	var clients []*holdfast.Client
	var wg sync.WaitGroup
	end := time.Now().Add(300 * time.Millisecond)
	again := func(fn func()) {
		wg.Go(func() {
			for time.Now().Before(end) {
				fn()
			}
		})
	}
	fn := func(ctx context.Context) error {
		token, _ := holdfast.TokenFrom(ctx)
		check.again(ctx, "job", token)
		holdfast.Heartbeat(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		return nil
	}
	for range 3 {
		c, err := holdfast.New(store.Locker(), holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(10*time.Second),
			holdfast.WithPollInterval(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		r := newRunner(t, c, holdfast.WithCoolDown(time.Millisecond), holdfast.WithIdleLimit(5*time.Millisecond), holdfast.WithStallTimeout(50*time.Millisecond),
			holdfast.WithHealthCheck(2*time.Millisecond, func(context.Context) error { return nil }))
		ctx := t.Context()
		again(func() { _ = r.Run(ctx, fn) })
		for range 2 {
			again(func() { _, _ = r.RunTaskOnLeader(ctx, fn) })
			again(func() { _ = r.StepDown(ctx); time.Sleep(3 * time.Millisecond) })
		}
		again(func() {
			limited, cancel := context.WithTimeout(ctx, time.Millisecond/2)
			defer cancel()
			_ = r.StepDown(limited)
			time.Sleep(7 * time.Millisecond)
		})
		again(func() { _, _ = r.Leader(ctx); _ = r.IsLeader() })
		wg.Go(func() {
			time.Sleep(time.Until(end))
			for range 2 {
				wg.Go(func() {
					if err := r.Close(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
			}
		})
	}
	wg.Wait()
	if isHeld(t, store, "job") {
		t.Error("held after all runners were closed")
	}
	for _, c := range clients {
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
}
