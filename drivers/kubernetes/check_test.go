package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// silent opens a Locker that gets no answer to requests whose URL has a part. asked is sent to for each of them.
func silent(t *testing.T, part string) (l *Locker, server *kubernetestest.Server, asked chan struct{}) {
	t.Helper()
	server, asked = kubernetestest.Start(t), make(chan struct{}, 10)
	config := configFor(server.Host())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return silence{next, part, asked} })
	return openWith(t, config), server, asked
}

type silence struct {
	next  http.RoundTripper
	part  string
	asked chan<- struct{}
}

// WrappedRoundTripper shows client-go the connections that it is to close.
func (s silence) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip implements [http.RoundTripper].
func (s silence) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.URL.Path, s.part) {
		return s.next.RoundTrip(r)
	}
	s.asked <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Check goes on without an answer after the time limit of a call, whichever request has none: its caller may have set none.
func TestCheckLimit(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]string{"/leases": "API server: wrong: it does not answer", "/version": "conditional writes: ",
		"/selfsubjectaccessreviews": "rights: not checked"} {
		l, _, _ := silent(t, part)
		if l.store.limit != callLimit {
			t.Errorf("the limit is %v", l.store.limit)
		}
		l.store.limit = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var found strings.Builder
		if err := l.Check(ctx, func(f driver.Finding) { fmt.Fprintf(&found, "%s: %s: %s\n", f.Subject, f.Level, f.Detail) }); err != nil {
			t.Errorf("%s: %v", part, err)
		}
		cancel()
		if !strings.Contains(found.String(), want) {
			t.Errorf("%s: doctor found\n%s, want %q", part, found.String(), want)
		}
	}
}

// After Close, Check sends nothing and says why, and what it has under way ends: nothing that it finds then is of the API server.
func TestCheckClosed(t *testing.T) {
	t.Parallel()
	l, server, asked := silent(t, "/selfsubjectaccessreviews")
	l.store.limit = time.Minute
	result := make(chan error, 1)
	go func() { result <- l.Check(t.Context(), func(driver.Finding) {}) }()
	<-asked
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("closed meanwhile: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Check goes on after Close")
	}
	before := server.Requests("create")
	err := l.Check(t.Context(), func(f driver.Finding) { t.Errorf("after Close: %+v", f) })
	if !errors.Is(err, driver.ErrClosed) || server.Requests("create") != before {
		t.Errorf("after Close: %v after %d requests", err, server.Requests("create")-before)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := openWith(t, configFor(server.Host())).Check(ended, func(driver.Finding) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}
