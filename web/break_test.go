package web_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/web"
)

func everybody(*http.Request) bool { return true }

// post sends a request to break, with the headers given.
func (p *page) post(body string, header map[string]string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.URL+"/locks/api/break", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := p.Client().Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func (p *page) token() string {
	p.t.Helper()
	var session struct {
		MayBreak bool
		Token    string
	}
	p.get("api/session", &session)
	if session.MayBreak != (session.Token != "") {
		p.t.Errorf("%+v", session)
	}
	return session.Token
}

func TestBreak(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{MayBreak: everybody, User: func(r *http.Request) string { return r.Header.Get("X-User") }})
	h := p.hold("job")
	token := p.token()
	body := fmt.Sprintf(`{"name":"job","token":"%d"}`, h.Token())
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		code   int
	}{
		"without the page's token": {body, nil, http.StatusForbidden},
		"with another token":       {body, map[string]string{"X-Holdfast-Token": token + "x"}, http.StatusForbidden},
		"from another site":        {body, map[string]string{"X-Holdfast-Token": token, "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"from another origin": {body, map[string]string{"X-Holdfast-Token": token, "Origin": "https://elsewhere.example"},
			http.StatusForbidden},
		"of a holder that was not":   {`{"name":"job","token":"5"}`, map[string]string{"X-Holdfast-Token": token}, http.StatusConflict},
		"without the holder's token": {`{"name":"job"}`, map[string]string{"X-Holdfast-Token": token}, http.StatusBadRequest},
		"with more than that": {`{"name":"job","token":"5","now":true}`, map[string]string{"X-Holdfast-Token": token},
			http.StatusBadRequest},
		"of an unknown holder": {`{"name":"job","unknown":true}`, map[string]string{"X-Holdfast-Token": token}, http.StatusConflict},
		"of two holders": {fmt.Sprintf(`{"name":"job","token":"%d","unknown":true}`, h.Token()), map[string]string{"X-Holdfast-Token": token},
			http.StatusBadRequest},
		"of no holder":   {`{"name":"job","token":"0"}`, map[string]string{"X-Holdfast-Token": token}, http.StatusBadRequest},
		"without a name": {`{"name":"","token":"5"}`, map[string]string{"X-Holdfast-Token": token}, http.StatusNotFound},
		"too long": {`{"name":"` + strings.Repeat("x", 10_000) + `"}`, map[string]string{"X-Holdfast-Token": token},
			http.StatusBadRequest},
	} {
		if code, text := p.post(c.body, c.header); code != c.code {
			t.Errorf("%s: status %d %s, want %d", name, code, text, c.code)
		}
		if r, err := p.client.Inspect(t.Context(), "job"); err != nil || r.Broken {
			t.Fatalf("%s: the lock was broken (%v)", name, err)
		}
	}
	if code, text := p.post(body, map[string]string{"X-Holdfast-Token": token, "Sec-Fetch-Site": "same-origin",
		"X-User": "ada"}); code != http.StatusOK {
		t.Fatalf("status %d %s", code, text)
	}
	if r, err := p.client.Inspect(t.Context(), "job"); err != nil || !r.Broken {
		t.Errorf("broken is %v, %v", r.Broken, err)
	}
	if log := p.log.String(); !strings.Contains(log, "a lock was broken from the page") || !strings.Contains(log, "lock=job") ||
		!strings.Contains(log, "client=127.0.0.1:") || !strings.Contains(log, "user=ada") || strings.Contains(log, token) {
		t.Errorf("the log:\n%s", log)
	}
}

// A refusal says what helps. Reloading helps only against another secret.
func TestRefusalSaysWhatHelps(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{MayBreak: everybody})
	h := p.hold("job")
	token := p.token()
	for name, c := range map[string]struct {
		header map[string]string
		says   []string
	}{
		"another secret": {map[string]string{"X-Holdfast-Token": token + "x"}, []string{"reload it", "several servers"}},
		"a proxy that replaces Host": {map[string]string{"X-Holdfast-Token": token, "Origin": "http://locks.example"},
			[]string{`http://locks.example`, p.Listener.Addr().String(), "keep the Host header", "HTTPS"}},
		"another site": {map[string]string{"X-Holdfast-Token": token, "Origin": "http://elsewhere.example", "Sec-Fetch-Site": "cross-site"},
			[]string{"another site"}},
	} {
		code, text := p.post(fmt.Sprintf(`{"name":"job","token":"%d"}`, h.Token()), c.header)
		for _, want := range c.says {
			if code != http.StatusForbidden || !strings.Contains(text, want) {
				t.Errorf("%s: status %d %s, want %q", name, code, text, want)
			}
			if reload := strings.Contains(text, "reload"); reload != (name == "another secret") {
				t.Errorf("%s: %s", name, text)
			}
			if log := p.log.String(); !strings.Contains(log, want) || strings.Contains(log, token) {
				t.Errorf("%s: the log has no %q, or the secret:\n%s", name, want, log)
			}
		}
	}
}

func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{})
	h := p.hold("job")
	if token := p.token(); token != "" {
		t.Error("the page got a token")
	}
	if code, _ := p.post(fmt.Sprintf(`{"name":"job","token":"%d"}`, h.Token()), nil); code != http.StatusForbidden {
		t.Errorf("status %d", code)
	}
	if code := p.get("api/break", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d", code)
	}
}

func TestWhoMayRead(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{MayRead: func(r *http.Request) bool { return r.URL.Query().Get("key") == "k" }})
	for _, path := range []string{"", "app.js", "api/locks", "api/lock?name=a", "api/session", "api/events", "api/instances"} {
		if code := p.get(path, nil); code != http.StatusForbidden {
			t.Errorf("%q: status %d", path, code)
		}
	}
	if code := p.get("api/locks?key=k", nil); code != http.StatusOK {
		t.Errorf("with the key: status %d", code)
	}
	if code, text := p.post(`{}`, nil); code != http.StatusForbidden || !strings.Contains(text, "you may not read") {
		t.Errorf("POST: status %d %s", code, text)
	}
}

// A reader who may break locks can break only those that the page shows.
func TestBreakOutsideOfThePrefix(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{Prefix: "team-a/", MayBreak: everybody})
	h := p.hold("team-b/job")
	code, text := p.post(fmt.Sprintf(`{"name":"team-b/job","token":"%d"}`, h.Token()), map[string]string{"X-Holdfast-Token": p.token()})
	if code != http.StatusNotFound {
		t.Errorf("status %d %s", code, text)
	}
	if r, err := p.client.Inspect(t.Context(), "team-b/job"); err != nil || r.Broken {
		t.Errorf("the lock was broken (%v)", err)
	}
}

// A lease that never ends is shown as such, and its holder can be broken although it has no token.
func TestBreakOfAnUnknownHolder(t *testing.T) {
	t.Parallel()
	l := &locktest.Endless{Locker: memory.New()}
	p := serveLocker(t, l, web.Options{MayBreak: everybody})
	var row map[string]any
	if p.get("api/lock?name=job", &row); row["endless"] != true || row["token"] != nil || row["lease"] == nil {
		t.Errorf("the lock: %v", row)
	}
	var list struct{ Rows []map[string]any }
	if p.get("api/locks", &list); len(list.Rows) != 1 || list.Rows[0]["endless"] != true {
		t.Errorf("the list: %v", list)
	}
	header := map[string]string{"X-Holdfast-Token": p.token()}
	if code, text := p.post(`{"name":"job","unknown":true}`, header); code != http.StatusOK {
		t.Errorf("status %d %s", code, text)
	}
	if target := l.Broken.Load(); target == nil || *target != driver.BreakUnknown() {
		t.Errorf("broke %v", target)
	}
}
