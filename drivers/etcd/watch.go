package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

var (
	errManyStreams = fmt.Errorf("%d locks are watched already", maxStreams)
	errLeft        = errors.New("the member has failed")
	errStreamEnded = errors.New("the stream has ended")
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
	if err := s.ask(ctx, call{method: methodRange, body: rangeRequest{Key: full, CountOnly: true}}, &rangeAnswer{}); err != nil {
		return err
	}
	all, present := s.members.order()
	m := all[0]
	used, done := s.members.use(m)
	defer done()
	there, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(present, cancel)()
	late := time.AfterFunc(s.timeout, func() { s.members.silent(m, used) })
	defer late.Stop()
	err := s.readStream(there, m, used, full, func(v cas.Value) { late.Stop(); changed(v) })
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

// readStream opens a stream for a key, and reports what comes. The member goes on although nothing more is sent.
func (s *store) readStream(ctx context.Context, m *member, used *connections, key []byte, changed func(cas.Value)) error {
	token := ""
	if s.login != nil {
		token = s.login.latest()
	}
	if s.sent != nil {
		s.sent()
	}
	resp, err := used.client.Open(ctx, s.request(m, methodWatch, watchRequest{rangeRequest{Key: key}}, token))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := isCall(resp.StatusCode, resp.Header); err != nil {
		return err
	}
	for {
		message, err := readFrame(resp.Body)
		switch {
		case errors.Is(err, io.EOF):
			if err := ended(resp.Header, resp.Trailer); err != nil {
				return err
			}
			return errStreamEnded
		case err != nil:
			return fmt.Errorf("%w: %w", errStreamEnded, err)
		}
		var a watchAnswer
		if err := decode(message, &a); err != nil {
			return err
		}
		if a.Canceled {
			return fmt.Errorf("the member has ended the watch: %s", driver.Quote(a.CancelReason))
		}
		if err := s.members.note(m, a.Header.ClusterID); err != nil {
			return &elsewhereError{err}
		}
		if a.Created {
			changed(cas.Value{})
		}
		for _, e := range a.Events {
			v := cas.Value{} // for a deletion
			if !e.Deleted {
				v = valueOf([]keyValue{e.KV})
			}
			changed(v)
		}
	}
}
