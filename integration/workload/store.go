//go:build unix

package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
)

// Store keeps a counter without any protection, and a fenced register. It runs in the test
// process, outside of all faults, so errors in its values are errors of the lock.
type Store struct {
	rec    *history.Recorder
	server http.Server
	url    string
	done   chan struct{}

	mu       sync.Mutex
	counter  int64
	last     update
	register registerState
}

// registerState is the state of a fenced register.
type registerState struct {
	Token uint64 `json:"token"`
	Value int64  `json:"value"`
}

// update is a request to set the counter to Base+1. Base is the value that was read before.
type update struct {
	Client, Process int
	Token           uint64
	Base            int64
}

// NewStore starts a store on a port of its own. It records each update of the counter.
func NewStore(ctx context.Context, rec *history.Recorder) (*Store, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Store{rec: rec, url: "http://" + l.Addr().String(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /counter", s.getCounter)
	mux.HandleFunc("PUT /counter", s.putCounter)
	mux.HandleFunc("GET /register", s.getRegister)
	mux.HandleFunc("PUT /register", s.putRegister)
	s.server = http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // until Close
	}()
	return s, nil
}

// URL returns the URL of the store.
func (s *Store) URL() string { return s.url }

// Close stops the store.
func (s *Store) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// LastClient returns the client that last updated the counter: most likely the lock holder.
func (s *Store) LastClient() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Client
}

// LastToken returns the token of the last update of the counter; 0 before the first update.
func (s *Store) LastToken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Token
}

func (s *Store) getCounter(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	n := s.counter
	s.mu.Unlock()
	encode(w, n)
}

func (s *Store) putCounter(w http.ResponseWriter, r *http.Request) {
	var u update
	if !decode(w, r, &u) {
		return
	}
	s.mu.Lock()
	found, at := s.counter, history.Now() // under the mutex, so that times have the order of updates
	s.counter, s.last = u.Base+1, u
	s.mu.Unlock()
	s.rec.Record(history.Line{Kind: history.Set, At: at, Client: u.Client, Process: u.Process, Token: u.Token,
		Base: u.Base, Found: found, Value: u.Base + 1})
}

func (s *Store) getRegister(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	c := s.register
	s.mu.Unlock()
	encode(w, c)
}

func (s *Store) putRegister(w http.ResponseWriter, r *http.Request) {
	var c registerState
	if !decode(w, r, &c) {
		return
	}
	s.mu.Lock()
	accepted := c.Token >= s.register.Token
	if accepted {
		s.register = c
	}
	s.mu.Unlock()
	if !accepted {
		w.WriteHeader(http.StatusConflict)
	}
}

func decode(w http.ResponseWriter, r *http.Request, what any) bool {
	if err := json.NewDecoder(r.Body).Decode(what); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func encode(w http.ResponseWriter, what any) {
	_ = json.NewEncoder(w).Encode(what) // fails only if the client has disconnected
}

// storeClient is a process's client of the store.
type storeClient struct {
	url    string
	client *http.Client
}

func (c storeClient) counter(ctx context.Context) (n int64, err error) {
	_, err = c.call(ctx, http.MethodGet, "/counter", nil, &n)
	return n, err
}

func (c storeClient) setCounter(ctx context.Context, u update) error {
	_, err := c.call(ctx, http.MethodPut, "/counter", u, nil)
	return err
}

func (c storeClient) name() string { return "store" }

func (c storeClient) read(ctx context.Context) (now registerState, err error) {
	_, err = c.call(ctx, http.MethodGet, "/register", nil, &now)
	return now, err
}

func (c storeClient) write(ctx context.Context, next registerState) (history.Outcome, error) {
	status, err := c.call(ctx, http.MethodPut, "/register", next, nil)
	switch {
	case status == http.StatusConflict:
		return history.Refused, nil
	case err != nil:
		return history.Unknown, err
	}
	return history.OK, nil
}

func (c storeClient) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode != http.StatusOK:
		return response.StatusCode, fmt.Errorf("store: %s %s: %s: %s", method, path, response.Status, text)
	case out != nil:
		err = json.Unmarshal(text, out)
	}
	return response.StatusCode, errors.Join(err)
}
