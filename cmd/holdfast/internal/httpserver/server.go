// Package httpserver has the parts of the HTTP servers of "holdfast serve" and "holdfast run --listen".
package httpserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the servers of "run --listen" and "serve". Anybody who can reach the address can use them up, so
// they are low enough that the lock's renewals do not suffer.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = time.Minute
	maxHeader         = 64 << 10
	maxBody           = 64 << 10

	// descriptorShare is the part of the process's file descriptors that connections may use; the rest is for
	// the backend.
	descriptorShare = 4
)

// New makes a server with at most so many connections. It does not limit the time of an answer: "serve" has some that never end.
func New(handler http.Handler, most int) *http.Server {
	if limit, ok := descriptorLimit(); ok {
		most = max(1, min(most, limit/descriptorShare))
	}
	open := &connections{most: most, open: map[net.Conn]connection{}}
	return &http.Server{Handler: http.MaxBytesHandler(handler, maxBody), ConnState: open.changed, ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
}

// connections limits the connections of a server. A new connection is never refused: an idle one is closed in its
// place. Otherwise clients that do nothing could keep a probe from its answer, and the job would be restarted.
type connections struct {
	most int

	mu     sync.Mutex
	latest uint64
	open   map[net.Conn]connection
}

type connection struct {
	since  uint64 // orders the connections by their last change
	active bool   // a request is being answered
}

// changed is the server's ConnState. The server calls it before it reads from a new connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if oldest := c.note(conn, state); oldest != nil {
		_ = oldest.Close()
	}
}

// note returns the connection to close, or nil.
func (c *connections) note(conn net.Conn, state http.ConnState) (oldest net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.open[conn]
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return nil
	}
	if !known && state != http.StateNew {
		return nil // it was closed here
	}
	c.latest++
	c.open[conn] = connection{c.latest, state == http.StateActive}
	if len(c.open) <= c.most {
		return nil
	}
	var first connection
	for other, is := range c.open {
		switch {
		case other == conn:
		case oldest == nil, first.active && !is.active, first.active == is.active && is.since < first.since:
			oldest, first = other, is
		}
	}
	delete(c.open, oldest)
	return oldest
}

// NotClosed is the error of a server, unless it was only closed.
func NotClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Healthy answers that the process runs.
func Healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
