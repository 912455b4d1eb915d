package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const (
	// writeTimeout bounds the writing of one event. A reader that has stopped reading loses its
	// connection.
	writeTimeout = 10 * time.Second
	// keepAlive is the longest time between two events, so that the page can tell a slow backend
	// from a lost connection, and that no proxy ends an idle one.
	keepAlive = 4 * time.Second
)

// update is the content of an event.
type update struct {
	AgeMs   *int64 `json:"ageMs,omitempty"` // since the backend answered; absent if it never has
	DueMs   int64  `json:"dueMs"`           // until its next answer is overdue
	Error   string `json:"error,omitempty"`
	Content any    `json:"content,omitempty"`
}

// events sends what is shown, and again whenever it changes, as server-sent events: "view" with
// the content, and "tick" if only time has passed. The parameters are those of /api/locks, or
// name for one lock, or view=instances.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // the answer to HEAD would never end
		w.Header().Set("Allow", http.MethodGet)
		fail(w, http.StatusMethodNotAllowed, "only GET has events")
		return
	}
	show, err := h.shows(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	w.WriteHeader(http.StatusOK)
	defer h.locks.Enter()()
	var seen *lockview.Snapshot
	last := ""
	for {
		s, err := h.next(r.Context(), seen)
		if err != nil { // the reader has left, or the page is closed
			return
		}
		text := ": no answer yet\n\n"
		if s != nil {
			seen = s
			event, body := "tick", update{DueMs: time.Until(s.Overdue).Milliseconds(), Error: errorText(s.Err)}
			if !s.At.IsZero() {
				age := time.Since(s.At).Milliseconds()
				body.AgeMs = &age
				if state, content := show(s); state != last {
					event, body.Content, last = "view", content(), state
				}
			}
			data, err := json.Marshal(body)
			if err != nil {
				return
			}
			text = fmt.Sprintf("event: %s\ndata: %s\n\n", event, data)
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
		if _, err := fmt.Fprint(w, text); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
}

// next waits for a later snapshot, but not for long: then it returns the one that the reader has
// seen, or nil.
func (h *Handler) next(ctx context.Context, seen *lockview.Snapshot) (*lockview.Snapshot, error) {
	number := 0
	if seen != nil {
		number = seen.Number
	}
	wait, cancel := context.WithTimeout(ctx, keepAlive)
	defer cancel()
	s, err := h.locks.After(wait, number)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return seen, nil
	}
	return s, err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// shows returns a function that says what a request shows of a snapshot: a text that differs if
// the content does, and the content.
func (h *Handler) shows(r *http.Request) (func(*lockview.Snapshot) (string, func() any), error) {
	values := r.URL.Query()
	if values.Has("name") {
		name := values.Get("name")
		if !h.shown(name) {
			return nil, errNotShown
		}
		return func(s *lockview.Snapshot) (string, func() any) { return h.showOne(s, name) }, nil
	}
	q, err := parseQuery(values)
	if err != nil {
		return nil, err
	}
	if values.Get("view") == "instances" {
		return func(s *lockview.Snapshot) (string, func() any) {
			v := instancesOf(s, q)
			h.locks.WantAll(s)
			text, _ := json.Marshal(v) // strings and numbers
			return string(text), func() any { return v }
		}, nil
	}
	return func(s *lockview.Snapshot) (string, func() any) {
		v := viewOf(s, q)
		h.locks.Want(v.shown...)
		v.AgeMs, v.Error = 0, "" // they are in the event
		rows := v.Rows
		v.Rows = make([]row, len(rows))
		for i, r := range rows { // time left changes always
			r.RemainingMs = nil
			v.Rows[i] = r
		}
		text, _ := json.Marshal(v) // strings and numbers
		return string(text), func() any {
			v.Rows = rows
			return v
		}
	}, nil
}

// showOne shows one lock. A name without a record may have been held earlier.
func (h *Handler) showOne(s *lockview.Snapshot, name string) (string, func() any) {
	if record := s.Record(name); record != nil {
		h.locks.Want(record)
		return mark(record), func() any { return detailOf(record, s.At) }
	}
	state := "absent"
	if slices.Contains(s.Unreadable, name) {
		state = "unreadable"
	}
	return state, func() any { return row{Name: name, State: state} }
}

// mark differs whenever a reader would see a difference, other than the time left.
func mark(r *driver.Record) string {
	text := fmt.Appendln(nil, r.State, r.Owner, r.Token, r.Broken, r.Endless, r.TTL, r.Waiters, r.AcquiredAt, r.RenewedAt, len(r.Holders))
	for _, h := range r.Holders[:min(len(r.Holders), maxHolders)] {
		text = fmt.Appendln(text, h.Token, h.Broken, h.RenewedAt)
	}
	return string(text)
}
