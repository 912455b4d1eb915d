package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// The gateway takes no further keys into a stream that has begun, and over HTTP/1.1 each stream needs a connection. So a process watches
// maxStreams keys at most, and the waiters for others poll.

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

var (
	errManyStreams = fmt.Errorf("%d locks are watched already", maxStreams)
	errLeft        = errors.New("the member has failed")
)

// watch is that of the [cas.Config]. It ends when the member fails; the next one begins at another. The member need not know of the latest
// writes when the stream begins: it reports those that it does not know when it learns of them.
//
// The answer to a request for a stream does not show whether a login has ended. So a request for the number of keys comes before it.
func (s *store) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return errManyStreams
	}
	full := []byte(s.key(key))
	if err := s.ask(ctx, call{path: pathRange, body: rangeRequest{Key: full, CountOnly: true}}, &rangeAnswer{}); err != nil {
		return err
	}
	all, present := s.members.order()
	m := all[0]
	there, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(present, cancel)()
	late := time.AfterFunc(s.timeout, func() { s.members.leave(m) })
	defer late.Stop()
	err := s.readStream(there, m, full, func(v cas.Value) { late.Stop(); changed(v) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case there.Err() != nil:
		return inMember(m, errLeft)
	case errors.As(err, new(*elsewhereError)):
		s.members.leave(m)
	}
	return inMember(m, err)
}

// readStream opens a stream for a key, and reports what comes.
func (s *store) readStream(ctx context.Context, m *member, key []byte, changed func(cas.Value)) error {
	body, err := json.Marshal(watchRequest{rangeRequest{Key: key}})
	if err != nil {
		return err
	}
	token := ""
	if s.login != nil {
		token = s.login.latest()
	}
	if s.sent != nil {
		s.sent()
	}
	resp, err := s.client.Open(ctx, s.request(m, pathWatch, body, token))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for answers := json.NewDecoder(resp.Body); ; {
		var a watchAnswer
		switch err := answers.Decode(&a); {
		case err != nil && resp.StatusCode != http.StatusOK: // it is no answer of the gateway
			return classify(httpstore.Answer{Status: resp.StatusCode})
		case err != nil:
			return fmt.Errorf("the stream has ended: %w", err)
		case a.Error != nil:
			text, _ := json.Marshal(a.Error) //nolint:errchkjson // a number and a text
			return classify(httpstore.Answer{Status: http.StatusServiceUnavailable, Body: text})
		case a.Result.Canceled:
			return fmt.Errorf("the member has ended the watch: %s", driver.Quote(a.Result.CancelReason))
		}
		if err := s.members.note(m, a.Result.Header.ClusterID); err != nil {
			return &elsewhereError{err}
		}
		if a.Result.Created {
			changed(cas.Value{})
		}
		for _, e := range a.Result.Events {
			v := cas.Value{} // for a deletion
			if e.Type != "DELETE" {
				v = valueOf([]keyValue{e.KV})
			}
			changed(v)
		}
	}
}
