package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is a served page with a client of its own.
type page struct {
	*httptest.Server
	t      *testing.T
	client *holdfast.Client
	store  *memory.Store
	log    strings.Builder
}

func serve(t *testing.T, options web.Options) *page {
	t.Helper()
	store := memory.NewStore()
	p := serveLocker(t, store.Locker(), options)
	p.store = store
	return p
}

// serveLocker serves the page of a Locker.
func serveLocker(t *testing.T, l holdfast.Locker, options web.Options) *page {
	t.Helper()
	p := &page{t: t}
	var err error
	if p.client, err = holdfast.New(l, holdfast.WithOwner("web-1")); err != nil {
		t.Fatal(err)
	}
	options.Logger = slog.New(slog.NewTextHandler(&p.log, nil))
	h, err := web.New(p.client, options)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewServer(http.StripPrefix("/locks", h))
	t.Cleanup(func() {
		h.Close()
		p.Close()
		p.Client().CloseIdleConnections()
		if err := p.client.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// get asks for a path and decodes the answer.
func (p *page) get(path string, into any) int {
	p.t.Helper()
	answer, err := p.Client().Get(p.URL + "/locks/" + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			p.t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return answer.StatusCode
}

func (p *page) hold(name string) *holdfast.Hold {
	p.t.Helper()
	h, err := p.client.Lock(p.t.Context(), name, holdfast.WithData([]byte("secret data")))
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

type answer struct {
	Total, Matching, Page, Pages int
	States                       map[string]int
	Rows                         []struct {
		Name, State, Owner, Token string
		RemainingMs               *int64
	}
}

func TestLocksAreListed(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	for i := range 120 {
		h := p.hold(fmt.Sprintf("job-%03d", i))
		if i%3 == 0 {
			if err := h.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got answer
	if code := p.get("api/locks?page=2&size=50", &got); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	if got.Total != 120 || got.Pages != 3 || got.Page != 2 || len(got.Rows) != 50 || got.Rows[0].Name != "job-050" {
		t.Errorf("page 2: %+v", got)
	}
	if got.States["held"] != 80 || got.States["free"] != 40 {
		t.Errorf("states: %v", got.States)
	}
	if r := got.Rows[0]; r.State != "held" || r.Owner != "web-1" || r.Token == "" || r.RemainingMs == nil {
		t.Errorf("a held lock: %+v", r)
	}
	p.get("api/locks?q=JOB-11&state=free&desc=1", &got)
	if got.Matching != 3 || got.Rows[0].Name != "job-117" {
		t.Errorf("search: %+v", got)
	}
	p.get("api/locks?q=nothing&page=7", &got)
	if got.Matching != 0 || got.Page != 1 || got.Rows == nil {
		t.Errorf("no match: %+v", got)
	}
	for _, bad := range []string{"page=0", "page=x", "size=-1", "sort=color", "state=odd"} {
		if code := p.get("api/locks?"+bad, nil); code != http.StatusBadRequest {
			t.Errorf("%s: status %d", bad, code)
		}
	}
}

// What the page is sent has no data and no lease ID, also where a lock is asked for by name.
func TestNoSecretLeaves(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	h := p.hold("job")
	for _, path := range []string{"api/locks", "api/lock?name=job", "api/instances", "api/session"} {
		response, err := p.Client().Get(p.URL + "/locks/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		for _, secret := range []string{"secret data", "c2VjcmV0", h.Lease().ID.Reveal()} {
			if strings.Contains(string(body), secret) {
				t.Errorf("%s shows %q", path, secret)
			}
		}
	}
}

func TestPrefixLimitsThePage(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{Prefix: "team-a/"})
	p.hold("team-a/job")
	p.hold("team-b/job")
	var got answer
	p.get("api/locks", &got)
	if got.Total != 1 || got.Rows[0].Name != "team-a/job" {
		t.Errorf("%+v", got)
	}
	if code := p.get("api/lock?name=team-b/job", nil); code != http.StatusNotFound {
		t.Errorf("a lock of others: status %d", code)
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	for _, name := range []string{"orders/partition-0001", "orders/partition-0002", "orders/partition-0003", "orders/partition-0007",
		"orders/partition-member-0000", "billing", "odd/partition-x"} {
		p.hold(name)
	}
	for i := range 60 {
		if _, err := p.client.Lock(t.Context(), fmt.Sprintf("other-%02d", i), holdfast.WithOwner(fmt.Sprintf("pod-%02d", i))); err != nil {
			t.Fatal(err)
		}
	}
	// Package partitions appends a mark to the owner for each run.
	if _, err := p.client.Lock(t.Context(), "mail/partition-0000", holdfast.WithOwner("web-1#0123456789ab")); err != nil {
		t.Fatal(err)
	}
	type instances struct {
		Total, Matching, Page, Pages int
		Instances                    []struct {
			Owner      string
			Locks      []string
			LocksHeld  int
			Partitions []struct {
				Group, Numbers string
				Count          int
			}
		}
	}
	var got instances
	p.get("api/instances?page=2&size=50", &got)
	if got.Total != 61 || got.Pages != 2 || len(got.Instances) != 11 {
		t.Fatalf("page 2: %+v", got)
	}
	got = instances{}
	p.get("api/instances?q=WEB", &got)
	if got.Matching != 1 || got.Instances[0].Owner != "web-1" || got.Instances[0].LocksHeld != 2 || len(got.Instances[0].Partitions) != 2 {
		t.Fatalf("search: %+v", got)
	}
	if mail, orders := got.Instances[0].Partitions[0], got.Instances[0].Partitions[1]; mail.Group != "mail" || orders.Group != "orders" ||
		orders.Count != 4 || orders.Numbers != "1–3, 7" {
		t.Errorf("partitions: %+v", got.Instances[0].Partitions)
	}
	if code := p.get("api/instances?page=0", nil); code != http.StatusBadRequest {
		t.Errorf("page 0: status %d", code)
	}
}

// An event follows a change on the backend; without a change there are only ticks.
func TestEventsFollowChanges(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{Refresh: 100 * time.Millisecond})
	events := p.follow("api/events?name=job")
	events.expect("view", `"state":"absent"`)
	events.expect("tick", `"ageMs":`)
	h := p.hold("job")
	events.expect("view", `"state":"held","owner":"web-1","token":"`+fmt.Sprint(h.Token()))
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	events.expect("view", `"state":"free"`)
}

// A name outside of the prefix has no events, and neither has a request whose answer would never end.
func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{Prefix: "team-a/"})
	for path, code := range map[string]int{"api/events?name=team-b/job": http.StatusBadRequest,
		"api/events?sort=color": http.StatusBadRequest} {
		if got := p.get(path, nil); got != code {
			t.Errorf("%s: status %d, want %d", path, got, code)
		}
	}
	answer, err := p.Client().Head(p.URL + "/locks/api/events")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: status %d", answer.StatusCode)
	}
}

type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
}

func (p *page) follow(path string) *eventStream {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	p.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/locks/"+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := p.Client().Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = response.Body.Close() })
	return &eventStream{p.t, bufio.NewScanner(response.Body)}
}

// expect reads until an event of this type with this text comes.
func (s *eventStream) expect(kind, text string) {
	s.t.Helper()
	event := ""
	for s.lines.Scan() {
		line := s.lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		} else if event == kind && strings.Contains(line, text) {
			return
		}
	}
	s.t.Fatalf("no event %q with %s: %v", kind, text, s.lines.Err())
}

// The page asks no other host, and runs no script but its own.
func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	for path, kind := range map[string]string{"": "text/html", "app.js": "text/javascript", "view.js": "text/javascript",
		"app.css": "text/css", "icon.svg": "image/svg+xml"} {
		response, err := p.Client().Get(p.URL + "/locks/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if !strings.HasPrefix(response.Header.Get("Content-Type"), kind) {
			t.Errorf("%q is %s", path, response.Header.Get("Content-Type"))
		}
		if csp := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") ||
			!strings.Contains(csp, "require-trusted-types-for 'script'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%q: policy %q", path, csp)
		}
		text := strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", "")
		if strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "//cdn") ||
			strings.Contains(text, "innerHTML") || strings.Contains(text, "onclick=") || strings.Contains(text, "style=") {
			t.Errorf("%q names another host, or sets HTML", path)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := web.New(nil, web.Options{}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a client: %v", err)
	}
	p := serve(t, web.Options{})
	if _, err := web.New(p.client, web.Options{Refresh: time.Millisecond}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Refresh 1ms: %v", err)
	}
}

// A backend that fails is shown as such, and what was read last stays.
func TestBackendFailure(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{Refresh: 100 * time.Millisecond})
	p.hold("job")
	events := p.follow("api/events")
	events.expect("view", `"name":"job"`)
	if err := p.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	events.expect("tick", `"error":"`)
}

// Ten thousand locks are as quick to page as ten: only the rows of a page are converted.
func BenchmarkTenThousandLocks(b *testing.B) {
	store := memory.NewStore()
	client, err := holdfast.New(store.Locker())
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		if _, err := client.Lock(b.Context(), fmt.Sprintf("job-%05d", i)); err != nil {
			b.Fatal(err)
		}
	}
	h, err := web.New(client, web.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for _, path := range []string{"/api/locks", "/api/locks?q=job-09&sort=left&page=3"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
	if err := client.Shutdown(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// One lock that is read alone has its past holders, with tokens as text, and lists have none.
func TestPastHolders(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	released := p.hold("job")
	if err := released.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := p.hold("job")
	freed := h.Token()
	if err := p.store.Locker().BreakNow(t.Context(), "job", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		History []struct {
			Owner, Token, End string
			From, Until       time.Time
		}
	}
	if code := p.get("api/lock?name=job", &got); code != http.StatusOK || len(got.History) != 2 {
		t.Fatalf("code %d, history %+v", code, got.History)
	}
	for i, want := range []string{fmt.Sprint("web-1 ", freed, " freed at once by an operator"),
		fmt.Sprint("web-1 ", released.Token(), " released")} {
		one := got.History[i]
		if have := one.Owner + " " + one.Token + " " + one.End; have != want || one.From.IsZero() || one.Until.Before(one.From) {
			t.Errorf("tenure %d is %+v, want %s", i, one, want)
		}
	}
	var all struct{ Rows []map[string]any }
	if p.get("api/locks", &all); len(all.Rows) != 1 || all.Rows[0]["history"] != nil {
		t.Errorf("the list has %v", all.Rows)
	}
}
