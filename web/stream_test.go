package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/web"
)

// anonymous is a Locker whose listing does not name the holders, as that of Azure Blob Storage.
type anonymous struct {
	driver.Locker
	inspected, listed atomic.Int32
	hung              atomic.Bool // listings do not end
}

func (l *anonymous) Inspect(ctx context.Context, name string) (driver.Record, error) {
	l.inspected.Add(1)
	return l.Locker.Inspect(ctx, name)
}

func (l *anonymous) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Lister = l
	return c
}

func (l *anonymous) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		l.listed.Add(1)
		if l.hung.Load() {
			<-ctx.Done()
			yield(driver.Record{}, errors.New("the backend hangs"))
			return
		}
		for r, err := range l.Locker.Capabilities().Lister.List(ctx, prefix) {
			if r.State == driver.StateHeld {
				r.Owner = ""
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// stream is a connection that keeps what is written to it.
type stream struct {
	locktest.Log
	head http.Header
}

func (s *stream) Header() http.Header { return s.head }
func (s *stream) WriteHeader(int)     {}
func (s *stream) Flush()              {}

// inBubble runs f in a bubble with a page of a Locker, and a function that follows events.
func inBubble(t *testing.T, refresh time.Duration, f func(t *testing.T, l *anonymous, client *holdfast.Client, h *web.Handler,
	follow func(path string) (*stream, context.CancelFunc))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &anonymous{Locker: memory.NewStore().Locker()}
		client, err := holdfast.New(l)
		if err != nil {
			t.Fatal(err)
		}
		h, err := web.New(client, web.Options{Refresh: refresh})
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		f(t, l, client, h, func(path string) (*stream, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &stream{head: http.Header{}}
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
			readers.Go(func() { h.ServeHTTP(s, request) })
			return s, cancel
		})
		h.Close()
		readers.Wait()
		locktest.ShutDown(t, client)
	})
}

// The owner of a lock that a reader sees is read, and shown until it is old.
func TestOwnersThatTheListingLacks(t *testing.T) {
	t.Parallel()
	inBubble(t, time.Second, func(t *testing.T, l *anonymous, client *holdfast.Client, _ *web.Handler,
		follow func(string) (*stream, context.CancelFunc)) {
		for _, name := range []string{"job", "unseen"} {
			locktest.MustLock(t, client, name, holdfast.WithOwner("owner-of-"+name), holdfast.WithTTL(time.Hour))
		}
		s, stop := follow("/api/events?q=job")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := s.Take(); !strings.Contains(got, `"owner":"owner-of-job"`) {
			t.Errorf("the owner is not shown:\n%s", got)
		} else if last := got[strings.LastIndex(got, "event: view"):]; !strings.Contains(last, "owner-of-job") {
			t.Errorf("the owner is shown no more:\n%s", last)
		}
		if n := l.inspected.Load(); n < 4 || n > 8 {
			t.Errorf("%d reads in 30s, want one in 5s, of the lock that is seen", n)
		}
		stop()
		s, stop = follow("/api/events?view=instances")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := s.Take(); !strings.Contains(got, "owner-of-job") || !strings.Contains(got, "owner-of-unseen") {
			t.Errorf("instances:\n%s", got)
		}
		stop()
	})
}

// A connection is never silent for long: neither while the backend is asked rarely, nor while it hangs.
func TestEventsKeepTheConnection(t *testing.T) {
	t.Parallel()
	inBubble(t, time.Minute, func(t *testing.T, l *anonymous, _ *holdfast.Client, _ *web.Handler,
		follow func(string) (*stream, context.CancelFunc)) {
		s, stop := follow("/api/events")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := s.Take(); strings.Count(got, "event: view") != 1 || strings.Count(got, "event: tick") < 6 {
			t.Errorf("in 30s:\n%s", got)
		}
		stop()
		time.Sleep(2 * time.Minute) // the loop ends: nobody looks
		l.hung.Store(true)
		s, stop = follow("/api/events")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := s.Take(); strings.Contains(got, "event:") || strings.Count(got, ": no answer yet") < 4 {
			t.Errorf("what was read minutes ago is shown, or the connection is silent:\n%s", got)
		}
		stop()
	})
}

// lastEvent is the last event of a stream.
type lastEvent struct {
	AgeMs   *int64
	DueMs   int64
	Error   string
	Content json.RawMessage
}

func lastOf(t *testing.T, s *stream) (last lastEvent) {
	t.Helper()
	synctest.Wait()
	text := s.Take()
	if err := json.Unmarshal([]byte(text[strings.LastIndex(text, "data: ")+len("data: "):]), &last); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return last
}

// Each event says how old the backend's answer is, and when the next one is overdue, so that the page
// does not count on with what is old. Without any answer nothing is shown: not even that there are no locks.
func TestEventsSayHowOldTheyAre(t *testing.T) {
	t.Parallel()
	inBubble(t, time.Second, func(t *testing.T, l *anonymous, _ *holdfast.Client, _ *web.Handler,
		follow func(string) (*stream, context.CancelFunc)) {
		s, stop := follow("/api/events")
		time.Sleep(10 * time.Second)
		if e := lastOf(t, s); e.AgeMs == nil || *e.AgeMs > 1000 || e.DueMs < 1000 || e.Error != "" {
			t.Errorf("while the backend answers: %+v", e)
		}
		l.hung.Store(true)
		time.Sleep(10 * time.Second)
		if e := lastOf(t, s); e.AgeMs == nil || *e.AgeMs < 5000 || e.DueMs >= 0 || e.Error != "" {
			t.Errorf("while it does not answer: %+v", e)
		}
		time.Sleep(30 * time.Second)
		if e := lastOf(t, s); e.AgeMs == nil || *e.AgeMs < 30_000 || e.Error == "" || e.Content != nil {
			t.Errorf("after its failure: %+v", e)
		}
		stop()
	})
	inBubble(t, time.Second, func(t *testing.T, l *anonymous, _ *holdfast.Client, _ *web.Handler,
		follow func(string) (*stream, context.CancelFunc)) {
		l.hung.Store(true)
		for _, path := range []string{"/api/events", "/api/events?name=job", "/api/events?view=instances"} {
			s, stop := follow(path)
			time.Sleep(40 * time.Second)
			if e := lastOf(t, s); e.AgeMs != nil || e.Error == "" || e.Content != nil {
				t.Errorf("%s, although the backend has never answered: %+v", path, e)
			}
			stop()
		}
	})
}

// The backend is asked while somebody looks, and no longer.
func TestNobodyLooks(t *testing.T) {
	t.Parallel()
	inBubble(t, time.Second, func(t *testing.T, l *anonymous, _ *holdfast.Client, _ *web.Handler,
		follow func(string) (*stream, context.CancelFunc)) {
		time.Sleep(time.Minute)
		if n := l.listed.Load(); n != 0 {
			t.Errorf("%d listings before somebody has looked", n)
		}
		_, stop := follow("/api/events")
		time.Sleep(10 * time.Second)
		stop()
		time.Sleep(10 * time.Second)
		before := l.listed.Load()
		time.Sleep(time.Minute)
		if n := l.listed.Load(); before < 9 || n != before {
			t.Errorf("%d listings in 10s and a little, then %d more", before, n-before)
		}
	})
}

// A server's ReadTimeout limits the request. The events go on.
func TestEventsOutlastReadTimeout(t *testing.T) {
	t.Parallel()
	client, err := holdfast.New(memory.NewStore().Locker())
	if err != nil {
		t.Fatal(err)
	}
	h, err := web.New(client, web.Options{Refresh: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 300 * time.Millisecond
	server := httptest.NewUnstartedServer(h)
	server.Config.ReadTimeout = limit
	server.Start()
	response, err := server.Client().Get(server.URL + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	began, lines := time.Now(), bufio.NewScanner(response.Body)
	for time.Since(began) < 5*limit && lines.Scan() {
	}
	if took := time.Since(began); took < 5*limit {
		t.Errorf("the events ended after %s: %v", took, lines.Err())
	}
	_ = response.Body.Close()
	h.Close()
	server.Close()
	locktest.ShutDown(t, client)
}
