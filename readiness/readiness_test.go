package readiness_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/readiness"
)

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client, err := holdfast.New(memory.New(), holdfast.WithOwner("host/1"), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := client.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		r, err := holdfast.NewLeaderAwareRunner(client, "job")
		if err != nil {
			t.Fatal(err)
		}
		probe := func(method string) (*httptest.ResponseRecorder, map[string]any) {
			t.Helper()
			w := httptest.NewRecorder()
			readiness.Handler(r).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/ready", http.NoBody))
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
		done := make(chan error, 1)
		go func() {
			done <- r.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute) // it stops slowly
				return ctx.Err()
			})
		}()
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
		idle("after the run")
	})
}

// A nil leader is found when the program starts, not by each probe.
func TestHandlerOfNil(t *testing.T) {
	for name, leader := range map[string]readiness.Leader{"nil": nil, "a nil runner": (*holdfast.LeaderAwareRunner)(nil)} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "holdfast: ") || !strings.Contains(text, "leader") {
					t.Errorf("%s: Handler panics with %q", name, text)
				}
			}()
			readiness.Handler(leader)
		}()
	}
}
