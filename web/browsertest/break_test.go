package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast"
)

const secret = "correct horse battery staple"

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// breakFolder makes the folder of a file backend unreadable: a file is in its place.
func breakFolder(t *testing.T, backend string) {
	t.Helper()
	dir := strings.TrimPrefix(backend, "file:")
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
		if err := os.Rename(dir+"-away", dir); err != nil {
			t.Error(err)
		}
	})
}

func isBroken(t *testing.T, client *holdfast.Client, name string) bool {
	t.Helper()
	r, err := client.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r.Broken
}

// A reader with the right to break gets a question first, and breaks the holder that was shown.
func TestBreak(t *testing.T) {
	for name, backend := range backends() {
		t.Run(name, func(t *testing.T) {
			u := backend(t)
			client := open(t, u, holdfast.WithOwner("worker-7"))
			h := lock(t, client, "job")
			s := serve(t, u, "--allow-break")
			p := newTab(t)
			p.goTo(s.url + "#/lock/job")
			p.do(chromedp.Click(chromedp.CSS("#break")))
			p.until(`question.open && document.activeElement.textContent === "Cancel"`)
			text := p.text("#question")
			for _, want := range []string{"job is held by worker-7, token " + strconv.FormatUint(h.Token(), 10),
				"Others can acquire the lock when the lease ends, within one TTL (30 s)."} { // the holder renews until the answer
				if !strings.Contains(text, want) {
					t.Errorf("the question has no %q: %s", want, text)
				}
			}
			p.do(chromedp.Click(chromedp.CSS("#question button"))) // Cancel
			p.until(`!question.open && document.activeElement.id === "break"`)
			if isBroken(t, client, "job") {
				t.Fatal("Cancel broke the lock")
			}
			p.do(chromedp.Click(chromedp.CSS("#break")), chromedp.Click(chromedp.CSS("#question .danger")))
			p.until(bodyHas("Broken: the backend refuses") + " && " + bodyHas("broken by worker-7"))
			if !isBroken(t, client, "job") {
				t.Error("the lock is not broken")
			}
			if log := s.log.String(); !strings.Contains(log, "a lock was broken from the page") || !strings.Contains(log, "lock=job") {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}

// If another holds the lock by the time of the answer, nothing is broken, and the page says so.
func TestBreakComesTooLate(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	h := lock(t, client, "job")
	s := serve(t, u, "--allow-break")
	p := newTab(t)
	p.goTo(s.url + "#/lock/job")
	p.do(chromedp.Click(chromedp.CSS("#break")))
	p.until(`question.open`)
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock(t, client, "job")
	p.do(chromedp.Click(chromedp.CSS("#question .danger")))
	p.until(bodyHas("Not broken: another holds the lock now"))
	if isBroken(t, client, "job") {
		t.Error("the next holder's lock was broken")
	}
}

// Without the right to break there is no button, and a request is refused.
func TestReadOnly(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	h := lock(t, client, "job")
	s := serve(t, u)
	p := newTab(t)
	p.goTo(s.url + "#/lock/job")
	p.until(bodyHas("Read-only.") + " && " + bodyHas("Held since"))
	hidden := js[bool](p, `document.getElementById("break").hidden`)
	status := js[int](p, fmt.Sprintf(`fetch("api/break", {method: "POST", headers: {"X-Holdfast-Token": "x"},
		body: '{"name":"job","token":"%d"}'}).then(a => a.status)`, h.Token()))
	if !hidden || status != http.StatusForbidden || isBroken(t, client, "job") {
		t.Errorf("the button is hidden: %v; a request's status: %d", hidden, status)
	}
}

// Behind a proxy without TLS the browser does not say where a request comes from. If the proxy replaces Host, the refusal says
// that this has to change; with Host the lock can be broken.
func TestBreakBehindProxy(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	lock(t, client, "job")
	s := serve(t, u, "--allow-break", "--host", site)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if keep {
				r.Out.Host = r.In.Host
			}
		}})
		t.Cleanup(proxy.Close)
		p := newTab(t)
		p.goTo("http://" + site + strings.TrimPrefix(proxy.URL, "http://127.0.0.1") + "/#/lock/job")
		p.do(chromedp.Click(chromedp.CSS("#break")), chromedp.Click(chromedp.CSS("#question .danger")))
		if keep {
			p.until(bodyHas("Broken: the backend refuses"))
		} else {
			p.until(bodyHas("Not broken: ") + " && " + bodyHas("keep the Host header") + " && !" + bodyHas("reload"))
		}
		if isBroken(t, client, "job") != keep {
			t.Errorf("with Host %v: broken is %v", keep, !keep)
		}
		p.do(chromedp.Navigate("about:blank"))
	}
}

// Another site cannot break a lock with the reader's browser, read the page, or show it in a frame.
func TestOtherSites(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	h := lock(t, client, "job")
	s := serve(t, u, "--allow-break")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>evil</title>
<form id="f" method="post" enctype="text/plain" action="%[1]sapi/break" target="out"><input
name='{"name":"job","token":"%[2]d","x":"' value='"}'></form>
<iframe name="out" id="out"></iframe><iframe id="frame" src="%[1]s"></iframe>`, s.url, h.Token())
	}))
	defer evil.Close()
	p := newTab(t)
	p.do(chromedp.Navigate(evil.URL))
	body := fmt.Sprintf(`{"name":"job","token":"%d"}`, h.Token())
	for what, script := range map[string]string{
		"a simple request": `fetch("` + s.url + `api/break", {method: "POST", mode: "no-cors", body: ` + quote(body) +
			`}).then(a => "sent " + a.status, e => "refused")`,
		"with the header": `fetch("` + s.url + `api/break", {method: "POST", headers: {"X-Holdfast-Token": "x"}, body: ` + quote(body) +
			`}).then(a => "sent", e => "refused")`,
		"reading the secret": `fetch("` + s.url + `api/session").then(a => a.text(), e => "refused")`,
		"reading the locks":  `fetch("` + s.url + `api/locks").then(a => a.text(), e => "refused")`,
		"following the locks": `new Promise(done => { const e = new EventSource("` + s.url +
			`api/events"); e.onerror = () => done("refused"); e.addEventListener("view", () => done("read")) })`,
		"loading the page's code": `import("` + s.url + `app.js").then(() => "loaded", () => "refused")`,
	} {
		got := js[string](p, script)
		if got != "refused" && got != "sent 0" { // the answer of a simple request cannot be read
			t.Errorf("%s: %s", what, got)
		}
	}
	js[any](p, `document.getElementById("f").submit()`)
	js[bool](p, `new Promise(done => { const f = document.getElementById("out"); f.onload = () => done(true);
		setTimeout(() => done(true), 1000) })`)
	frames := js[int](p, `[...document.querySelectorAll("iframe")].filter(f => {
		try { return f.contentDocument?.getElementById("rows") } catch { return false } }).length`)
	if frames != 0 {
		t.Error("a frame of another site shows the page")
	}
	if isBroken(t, client, "job") {
		t.Error("another site broke the lock")
	}
	if log := s.log.String(); !strings.Contains(log, "does not come from the page") {
		t.Errorf("no refused attempt is in the log:\n%s", log)
	}
}

// Without the secret nothing is answered, and with it everything: in the browser by its login.
func TestSecret(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	h := lock(t, client, "job")
	s := serve(t, u, "--allow-break", "--token-file", secretFile(t))
	body := fmt.Sprintf(`{"name":"job","token":"%d"}`, h.Token())
	for who, header := range map[string]string{"nobody": "", "a wrong secret": "Bearer " + secret + "x",
		"a wrong password": "Basic b3BzOndyb25n"} {
		for _, path := range []string{"", "app.js", "api/session", "api/locks", "api/lock?name=job", "api/instances", "api/events", "api/break"} {
			method := http.MethodGet
			if path == "api/break" {
				method = http.MethodPost
			}
			request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				request.Header.Set("Authorization", header)
			}
			answer, err := http.DefaultClient.Do(request) //nolint:bodyclose // readAll closes it
			if err != nil {
				t.Fatal(err)
			}
			if text := readAll(answer.Body); answer.StatusCode != http.StatusUnauthorized || strings.Contains(text, "job") {
				t.Errorf("%s: %s %q: status %d: %s", who, method, path, answer.StatusCode, text)
			}
		}
	}
	p := newTab(t)
	password := "wrong"
	asked := make(chan string, 10)
	if err := chromedp.Listen(p.ctx, func(event any) {
		switch e := event.(type) {
		case *fetch.EventAuthRequired:
			answer := &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: "ada",
				Password: password}
			asked <- password
			password = secret
			go func() {
				_, _ = chromedp.Call(p.ctx, fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: answer})
			}()
		case *fetch.EventRequestPaused:
			go func() {
				_, _ = chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
			}()
		}
	}); err != nil {
		t.Fatal(err)
	}
	handle := true
	call(p, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &handle})
	p.goTo(s.url + "#/lock/job")
	if first, second := <-asked, <-asked; first != "wrong" || second != secret {
		t.Errorf("the browser asked for %q, then %q", first, second)
	}
	p.do(chromedp.Click(chromedp.CSS("#break")), chromedp.Click(chromedp.CSS("#question .danger")))
	p.until(bodyHas("Broken: the backend refuses"))
	if !isBroken(t, client, "job") {
		t.Error("the lock is not broken")
	}
	if log := s.log.String(); !strings.Contains(log, "user=ada") || strings.Contains(log, secret) {
		t.Errorf("the log:\n%s", log)
	}
}

// Nothing that the server sends has a lease ID, data or a credential.
func TestNoSecretLeaves(t *testing.T) {
	for name, backend := range backends() {
		t.Run(name, func(t *testing.T) {
			u := backend(t)
			client := open(t, u)
			h := lock(t, client, "job", holdfast.WithData([]byte("confidential")))
			s := serve(t, u, "--allow-break")
			for _, path := range []string{"api/session", "api/locks", "api/lock?name=job", "api/instances"} {
				answer, err := http.Get(s.url + path) //nolint:bodyclose // readAll closes it
				if err != nil {
					t.Fatal(err)
				}
				text := readAll(answer.Body)
				for _, hidden := range []string{h.Lease().ID.Reveal(), "confidential", "Y29uZmlkZW50aWFs",
					"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"} {
					if strings.Contains(strings.ToLower(text), strings.ToLower(hidden)) {
						t.Errorf("%s has %q: %s", path, hidden, text)
					}
				}
			}
			if log := s.log.String(); strings.Contains(log, h.Lease().ID.Reveal()) {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}
