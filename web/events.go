package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// writeTimeout bounds the writing of one event, so that a reader that has stopped reading does not
// keep its connection.
const writeTimeout = 10 * time.Second

// events sends what is shown, and again whenever it changes, as server-sent events: "view" with
// the whole page of rows, and "tick" if only time has passed. The parameters are those of
// /api/locks, or name for one lock, or view=instances.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	show, err := h.shows(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	defer h.locks.Enter()()
	number, last := 0, ""
	for {
		s, err := h.locks.After(r.Context(), number)
		if err != nil { // the reader has left, or the page is closed
			return
		}
		number = s.Number
		state, content := show(s)
		event, body := "tick", any(map[string]any{"ageMs": time.Since(s.At).Milliseconds(), "error": errorText(s.Err)})
		if state != last {
			event, body, last = "view", content(), state
		}
		text, err := json.Marshal(body)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
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
	switch {
	case values.Get("view") == "instances":
		return func(s *lockview.Snapshot) (string, func() any) {
			list := instancesOf(s)
			text, _ := json.Marshal(list) // strings and numbers
			return string(text) + errorText(s.Err), func() any { return list }
		}, nil
	case values.Has("name"):
		name := values.Get("name")
		return func(s *lockview.Snapshot) (string, func() any) {
			for i := range s.Records {
				if record := &s.Records[i]; record.Name == name {
					return mark(record), func() any { return rowOf(*record, s.At) }
				}
			}
			return "none", func() any { return row{Name: name, State: "free"} }
		}, nil
	}
	q, err := parseQuery(values)
	if err != nil {
		return nil, err
	}
	return func(s *lockview.Snapshot) (string, func() any) {
		v := viewOf(s, q)
		v.AgeMs = 0
		rows := v.Rows
		v.Rows = make([]row, len(rows))
		for i, r := range rows { // time left changes always
			r.RemainingMs = nil
			v.Rows[i] = r
		}
		text, _ := json.Marshal(v) // strings and numbers
		return string(text), func() any {
			v.Rows, v.AgeMs = rows, time.Since(s.At).Milliseconds()
			return v
		}
	}, nil
}

// mark differs whenever a reader would see a difference, other than the time left.
func mark(r *driver.Record) string {
	return fmt.Sprint(r.State, r.Owner, r.Token, r.Broken, r.TTL, r.AcquiredAt, r.RenewedAt)
}
