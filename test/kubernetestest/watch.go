package kubernetestest

import (
	"net/http"
	"strconv"
	"time"
)

// watch is a request that changes are reported to.
type watch struct {
	namespace, name string // name is empty for all
	events          chan []byte
	ended           chan struct{}
	isEnded         bool
}

// end ends the watch; the Server's mu is held.
func (w *watch) end() {
	if !w.isEnded {
		w.isEnded = true
		close(w.ended)
	}
}

// report reports a change to all who watch it; mu is held. A watch that does not keep up ends, as on a real server.
func (s *Server) report(kind, namespace, name string, o object) {
	for w := range s.watches {
		if w.namespace != namespace || w.name != "" && w.name != name {
			continue
		}
		select {
		case w.events <- encode(object{"type": kind, "object": o}):
		default:
			w.end()
		}
	}
}

// ExpireWatches reports to all watches that their version has expired, as a server does to one that does not keep up.
func (s *Server) ExpireWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.events <- encode(object{"type": "ERROR", "object": refusal(http.StatusGone, "Expired", "too old resource version", "").body})
	}
}

// watch serves one. Without a resource version it begins with the present objects.
func (s *Server) watch(out http.ResponseWriter, r *http.Request, namespace, name string) {
	w := &watch{namespace: namespace, name: name, events: make(chan []byte, 1000), ended: make(chan struct{})}
	s.mu.Lock()
	s.watches[w] = struct{}{}
	if r.URL.Query().Get("resourceVersion") == "" {
		for n, o := range s.leases[namespace] {
			if name == "" || n == name {
				w.events <- encode(object{"type": "ADDED", "object": o})
			}
		}
	}
	now := s.now()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	}()
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 3600
	}
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timer.Stop()
	out.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	out.WriteHeader(http.StatusOK)
	control := http.NewResponseController(out)
	for {
		if control.Flush() != nil {
			return
		}
		select {
		case e := <-w.events:
			if _, err := out.Write(append(e, '\n')); err != nil {
				return
			}
		case <-w.ended:
			panic(http.ErrAbortHandler)
		case <-timer.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
