package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// The gateway takes no further keys into a stream that has begun, and over HTTP/1.1 each stream needs a connection. So the first keys have
// streams of their own. A process that waits for more locks has one stream with the changes of all keys of its prefix for them.

const pathWatch = "/v3/watch"

type watchRequest struct {
	Create rangeRequest `json:"create_request"`
}

// watchAnswer is one of those that come on a stream.
type watchAnswer struct {
	Result struct {
		headed
		Created      bool   `json:"created"`
		Canceled     bool   `json:"canceled"`
		CancelReason string `json:"cancel_reason"`
		Events       []struct {
			Type string   `json:"type"` // DELETE, or empty
			KV   keyValue `json:"kv"`
		} `json:"events"`
	} `json:"result"`
	Error *failure `json:"error"`
}

// watch is that of the [cas.Config].
func (s *store) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	select {
	case s.own <- struct{}{}:
		defer func() { <-s.own }()
	default:
		return s.shared.watch(ctx, s, key, changed)
	}
	return s.stream(ctx, rangeRequest{Key: []byte(s.key(key))}, func() { changed(cas.Value{}) }, func(_ string, v cas.Value) { changed(v) })
}

var errLeft = errors.New("the member has failed")

// stream reports the changes of a range of keys, from when it has called created until its end. The member need not know of the latest
// writes: it reports those that it does not know when it learns of them.
//
// The answer to a request for a stream does not show whether a login has ended. So one for the number of keys comes before it.
func (s *store) stream(ctx context.Context, keys rangeRequest, created func(), changed func(key string, v cas.Value)) error {
	count := keys
	count.CountOnly = true
	if err := s.ask(ctx, call{path: pathRange, body: count}, &rangeAnswer{}); err != nil {
		return err
	}
	all, present := s.members.order()
	m := all[0]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(present, func() { cancel(errLeft) })()
	defer context.AfterFunc(s.ctx, func() { cancel(context.Canceled) })()
	late := time.AfterFunc(s.timeout, func() { s.members.leave(m) })
	defer late.Stop()
	err := s.readStream(ctx, m, keys, func() { late.Stop(); created() }, changed)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.As(err, new(*elsewhereError)) {
		s.members.leave(m)
	}
	return inMember(m, err)
}

// readStream opens a stream and reads it.
func (s *store) readStream(ctx context.Context, m *member, keys rangeRequest, created func(), changed func(string, cas.Value)) error {
	body, err := json.Marshal(watchRequest{keys})
	if err != nil {
		return err
	}
	token := ""
	if s.login != nil {
		token = s.login.latest()
	}
	resp, err := s.client.Open(ctx, s.request(m, pathWatch, body, token))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // without it the status remains
		return refusedStream(resp.StatusCode, text)
	}
	for answers := json.NewDecoder(resp.Body); ; {
		var a watchAnswer
		switch err := answers.Decode(&a); {
		case err != nil:
			return fmt.Errorf("the stream has ended: %w", err)
		case a.Error != nil:
			return classify(httpstore.Answer{Status: http.StatusServiceUnavailable, Body: []byte(quoted(*a.Error))})
		case a.Result.Canceled:
			return fmt.Errorf("the member has ended the watch: %s", driver.Quote(a.Result.CancelReason))
		}
		if err := s.members.note(m, a.Result.Header.ClusterID); err != nil {
			return &elsewhereError{err}
		}
		if a.Result.Created {
			created()
		}
		for _, e := range a.Result.Events {
			var v cas.Value // for a deletion
			if e.Type != "DELETE" {
				v = valueOf([]keyValue{e.KV})
			}
			changed(string(e.KV.Key), v)
		}
	}
}

// refusedStream is the error for a status other than 200. The body is that of a stream, or of a server of HTTP.
func refusedStream(status int, body []byte) error {
	var a watchAnswer
	if json.Unmarshal(body, &a) == nil && a.Error != nil {
		body = []byte(quoted(*a.Error))
	}
	return classify(httpstore.Answer{Status: status, Body: body})
}

// quoted is a failure as an answer that is no stream has it.
func quoted(f failure) string {
	text, _ := json.Marshal(f) //nolint:errchkjson // a number and a text
	return string(text)
}

// shared has the stream of those keys that have none of their own. It runs while somebody watches.
type shared struct {
	mu  sync.Mutex
	now *sharedStream // nil while nobody watches
}

// sharedStream is one stream. The mu of shared guards it.
type sharedStream struct {
	watches  map[string]map[*watch]struct{} // by the key of etcd
	inEffect bool
	end      context.CancelFunc
}

// watch is one that has no stream of its own.
type watch struct {
	key     string
	changed func(cas.Value)
	failed  chan error
}

// watch reports the changes of a key until ctx or the stream ends.
func (sh *shared) watch(ctx context.Context, s *store, key string, changed func(cas.Value)) error {
	w := &watch{key: s.key(key), changed: changed, failed: make(chan error, 1)}
	of, inEffect, err := sh.join(s, w)
	if err != nil {
		return err
	}
	defer sh.leave(of, w)
	if inEffect {
		changed(cas.Value{})
	}
	select {
	case err := <-w.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join adds a watch to the stream, and reports whether that is in effect already. The first one starts it.
func (sh *shared) join(s *store, w *watch) (of *sharedStream, inEffect bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.ctx.Err() != nil { // close waits for the streams that there are
		return nil, false, driver.ErrClosed
	}
	of = sh.now
	if of == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		of = &sharedStream{watches: map[string]map[*watch]struct{}{}, end: cancel}
		sh.now = of
		s.work.Go(func() {
			defer cancel()
			sh.run(ctx, s, of)
		})
	}
	if of.watches[w.key] == nil {
		of.watches[w.key] = map[*watch]struct{}{}
	}
	of.watches[w.key][w] = struct{}{}
	return of, of.inEffect, nil
}

// run reads a stream until it ends. Then its watches do.
func (sh *shared) run(ctx context.Context, s *store, of *sharedStream) {
	prefix := s.key("")
	err := s.stream(ctx, rangeRequest{Key: []byte(prefix), RangeEnd: endOf(prefix)},
		func() {
			for _, w := range sh.begin(of) {
				w.changed(cas.Value{})
			}
		},
		func(key string, v cas.Value) {
			for _, w := range sh.watching(of, key) {
				w.changed(v)
			}
		})
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.now == of {
		sh.now = nil
	}
	for _, watches := range of.watches {
		for w := range watches {
			w.failed <- err
		}
	}
}

// begin notes that a stream is in effect, and returns its watches.
func (sh *shared) begin(of *sharedStream) (all []*watch) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	of.inEffect = true
	for _, watches := range of.watches {
		all = slices.AppendSeq(all, maps.Keys(watches))
	}
	return all
}

func (sh *shared) watching(of *sharedStream, key string) []*watch {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return slices.Collect(maps.Keys(of.watches[key]))
}

// leave removes a watch. With the last one its stream ends.
func (sh *shared) leave(of *sharedStream, w *watch) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if delete(of.watches[w.key], w); len(of.watches[w.key]) == 0 {
		delete(of.watches, w.key)
	}
	if len(of.watches) == 0 {
		of.end()
		if sh.now == of {
			sh.now = nil
		}
	}
}
