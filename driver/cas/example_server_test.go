package cas_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// etagServer is an object store. Its ETags are hashes of the values.
type etagServer struct {
	*memStore
	now func() time.Time
}

func newETagServer(now func() time.Time) *etagServer { return &etagServer{newStore(), now} }

func etag(data []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(data))) }

func (s *etagServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	key := r.URL.Path[1:]
	query := r.URL.Query()
	if err := s.wait(r.Context(), key+query.Get("prefix")); errors.Is(err, driver.ErrDenied) {
		w.WriteHeader(http.StatusForbidden)
		return
	} else if err != nil {
		return
	}
	if key == "" {
		items, next, _ := s.List(r.Context(), query.Get("prefix"), query.Get("continuation-token"))
		keys := []string{}
		for _, item := range items {
			keys = append(keys, item.Key)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys, "next": next})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[key]
	switch exists := v.Version != ""; {
	case r.Method == http.MethodGet && !exists:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", etag(v.Data))
		_, _ = w.Write(v.Data)
	case r.Header.Get("If-None-Match") == "*" && exists, r.Header.Get("If-Match") != "" &&
		(!exists || r.Header.Get("If-Match") != etag(v.Data)):
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		s.set(key, body)
		w.Header().Set("ETag", etag(body))
	}
}

// The example is a driver like any other.
func TestExample(t *testing.T) {
	t.Parallel()
	clock := locktest.NewClock()
	store := newETagServer(clock.Now)
	server := httptest.NewServer(store)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			l, err := openETag(t.Context(), "etag:"+server.URL[len("http:"):]+"/")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.(*cas.Locker).Close(context.WithoutCancel(t.Context())) })
			return l
		},
		Advance:   clock.Advance,
		TTL:       10 * time.Second,
		ClockStep: time.Second,
		Forget:    store.forget,
		Stall:     store.stall,
		Deny:      store.deny,
		Damage:    store.damage,
		Without:   []string{"FailOver"},
	})
}
