// Package web is a page that shows the locks of a backend, live, as an [http.Handler].
//
//	handler, err := web.New(client, web.Options{})
//	if err != nil { … }
//	defer handler.Close()
//	http.Handle("/locks/", http.StripPrefix("/locks", handler))
//
// The page is read-only unless [Options.MayBreak] says otherwise. It never shows a lease ID, a
// lock's data or a credential. It has no login of its own: put it behind the program's, or use
// [Options.MayRead]. "holdfast serve" serves it with a token file.
package web

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// Options configure a [Handler]. The zero value is a read-only page that everybody may read.
type Options struct {
	// Backend is shown at the top of the page, so that nobody takes one backend for another, such as
	// staging for production. It must have no credentials. Empty: nothing is shown.
	Backend string
	// Prefix limits the page to locks whose names begin with it.
	Prefix string
	// Refresh is how often the backend is asked for its locks while somebody looks at the page.
	// From 100ms; the default is 500ms. A listing that takes long is repeated less often, so that
	// it takes at most a fifth of the time.
	Refresh time.Duration
	// MayRead reports whether a request may read anything at all. nil: everybody may.
	MayRead func(*http.Request) bool
	// MayBreak reports whether a request may break a lock. nil: nobody may.
	// Each break is of the holder that the reader has seen, by its fencing token, and needs a
	// secret of this Handler that other sites cannot read. If several Handlers share an address,
	// the balancer has to send a reader to the same one.
	MayBreak func(*http.Request) bool
	// User names who sends a request, for the log. A name that the client can choose freely, as
	// that of a shared password, proves nothing. nil: only the client's address is logged.
	User func(*http.Request) string
	// Logger gets a message for each lock that was broken, with the client's address, and for
	// each refused attempt. nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultRefresh = 500 * time.Millisecond
	minRefresh     = 100 * time.Millisecond
)

// Handler serves the page. It expects the paths below its own address, so use http.StripPrefix
// where it is not at the root; the address ends with a slash. It is safe for concurrent use.
type Handler struct {
	client  *holdfast.Client
	options Options
	locks   *lockview.Source
	mux     *http.ServeMux
	origin  *http.CrossOriginProtection
	token   string // that a request to break must bring; other sites cannot read it
}

//go:embed assets
var assets embed.FS

// files are the parts of the page, with their types: those that the system knows can be wrong.
var files = map[string]string{
	"index.html": "text/html; charset=utf-8",
	"app.js":     "text/javascript; charset=utf-8",
	"view.js":    "text/javascript; charset=utf-8",
	"app.css":    "text/css; charset=utf-8",
	"icon.svg":   "image/svg+xml",
}

// policy lets the page load its own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// errNotShown is about a name outside of the prefix.
var errNotShown = errors.New("no such lock here")

// New makes a Handler for the locks of a client. The error is a *[holdfast.InvalidError] if an
// option is not allowed, and matches [errors.ErrUnsupported] if the backend cannot list its locks.
// Close the Handler before the Client is shut down.
func New(client *holdfast.Client, options Options) (*Handler, error) {
	switch {
	case client == nil:
		return nil, driver.Invalid("client", "nil", "a Client")
	case options.Refresh != 0 && options.Refresh < minRefresh:
		return nil, driver.Invalid("Refresh", driver.FormatDuration(options.Refresh), "at least "+driver.FormatDuration(minRefresh))
	case client.Locker().Capabilities().Lister == nil:
		return nil, driver.Errorf("this backend cannot list its locks: %w", errors.ErrUnsupported)
	}
	if options.Refresh == 0 {
		options.Refresh = defaultRefresh
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	h := &Handler{client: client, options: options, locks: lockview.NewSource(client, options.Prefix, options.Refresh),
		mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(), token: rand.Text()}
	for name, kind := range files {
		path := "GET /" + name
		if name == "index.html" {
			path = "GET /{$}"
		}
		h.mux.Handle(path, serveFile(name, kind))
	}
	h.mux.HandleFunc("GET /api/session", h.session)
	h.mux.HandleFunc("GET /api/locks", h.list)
	h.mux.HandleFunc("GET /api/instances", h.instances)
	h.mux.HandleFunc("GET /api/lock", h.lock)
	h.mux.HandleFunc("GET /api/events", h.events)
	h.mux.HandleFunc("POST /api/break", h.breakLock)
	return h, nil
}

// Close ends all live connections and waits until no request to the backend is under way.
func (h *Handler) Close() { h.locks.Close() }

// ServeHTTP serves the page and what it asks for.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if h.options.MayRead != nil && !h.options.MayRead(r) {
		fail(w, http.StatusForbidden, "you may not read the locks")
		return
	}
	h.mux.ServeHTTP(w, r)
}

func serveFile(name, kind string) http.Handler {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the file is compiled in
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content) // the reader may be gone
	})
}

// session answers with what the reader may do, and with the token that a request to break must bring.
func (h *Handler) session(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		MayBreak bool     `json:"mayBreak"`
		Token    string   `json:"token,omitempty"`
		Prefix   string   `json:"prefix"`
		Backend  string   `json:"backend,omitempty"`
		Caveats  []string `json:"caveats,omitempty"`
	}{Prefix: h.options.Prefix, Backend: h.options.Backend, Caveats: h.client.Info().Caveats()}
	if h.mayBreak(r) {
		answer.MayBreak, answer.Token = true, h.token
	}
	writeJSON(w, http.StatusOK, answer)
}

func (h *Handler) mayBreak(r *http.Request) bool {
	return h.options.MayBreak != nil && h.client.Locker().Capabilities().Breaker != nil && h.options.MayBreak(r)
}

// lock answers with one lock, read from the backend now.
func (h *Handler) lock(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if !h.shown(name) {
		fail(w, http.StatusNotFound, errNotShown.Error())
		return
	}
	record, err := h.client.Inspect(r.Context(), name)
	if err != nil {
		failBackend(w, err)
		return
	}
	writeJSON(w, http.StatusOK, detailOf(&record, time.Now()))
}

// shown reports whether the page is about this lock.
func (h *Handler) shown(name string) bool {
	return name != "" && len(name) >= len(h.options.Prefix) && name[:len(h.options.Prefix)] == h.options.Prefix
}

// list answers with a page of locks.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) {
	h.page(w, r, func(s *lockview.Snapshot, q query) any { return viewOf(s, q) })
}

// instances answers with a page of the holders and what they hold.
func (h *Handler) instances(w http.ResponseWriter, r *http.Request) {
	h.page(w, r, func(s *lockview.Snapshot, q query) any {
		v := instancesOf(s, q)
		v.AgeMs = time.Since(s.At).Milliseconds()
		return v
	})
}

// page answers with a page of what a fresh listing has shown.
func (h *Handler) page(w http.ResponseWriter, r *http.Request, of func(*lockview.Snapshot, query) any) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s, err := h.locks.Next(r.Context())
	if err != nil {
		failBackend(w, err)
		return
	}
	writeJSON(w, http.StatusOK, of(s, q))
}

// failBackend answers that the backend failed. The library's errors carry no secret.
func failBackend(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, driver.ErrInvalid):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, holdfast.ErrClosed):
		fail(w, http.StatusServiceUnavailable, "the page is being closed")
	default:
		fail(w, http.StatusBadGateway, err.Error())
	}
}

func fail(w http.ResponseWriter, code int, message string) {
	writeJSON(w, code, map[string]string{"error": message})
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the reader may be gone
}
