package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// call is what a member is asked.
type call struct {
	method string // such as /etcdserverpb.KV/Range
	body   message
	// writes says that no second member may be asked if the first one may have got the request.
	writes bool
	// bare says that the answer may have no header, and so not show the cluster.
	bare bool
}

// ask makes a request at the present member and, as far as that is safe, at the next ones.
func (s *store) ask(ctx context.Context, c call, into answer) error {
	all, _ := s.members.order()
	var failed []error
	for i, m := range all {
		limit := s.timeout
		if deadline, ok := ctx.Deadline(); ok && !c.writes && i+1 < len(all) {
			limit = min(limit, time.Until(deadline)/2) // the other half is for the next ones
		}
		err := s.askMember(ctx, m, limit, c, into)
		if err == nil {
			if i > 0 {
				s.members.stay(m)
			}
			return nil
		}
		var next *elsewhereError
		if !errors.As(err, &next) || ctx.Err() != nil {
			return err
		}
		s.members.leave(m)
		failed = append(failed, next.error)
	}
	return allFailed(failed)
}

// askMember makes a request at one member, within a time limit. If the login has ended, the member has done nothing, and it is asked again
// with another one. An *elsewhereError says that another member may be asked.
func (s *store) askMember(ctx context.Context, m *member, limit time.Duration, c call, into answer) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	at := attempt{store: s, member: m, ctx: ctx, limited: limited}
	if c.writes && !s.members.isKnown(m) {
		if err := at.logInAndSend(s.look(), &rangeAnswer{}); err != nil {
			return at.elsewhereIf(err) // nothing was written
		}
	}
	err := at.logInAndSend(c, into)
	if !c.writes {
		err = at.elsewhereIf(err)
	}
	return err
}

// look is a request that shows whether a member serves requests, and which cluster it belongs to.
func (s *store) look() call {
	return call{method: methodRange, body: rangeRequest{Key: []byte(s.key(cas.ProbeKey)), CountOnly: true}}
}

// attempt is what one member is asked. limited is ctx with the time limit.
type attempt struct {
	*store
	member       *member
	ctx, limited context.Context //nolint:containedctx // they are those of one call
}

// elsewhereIf lets another member be asked if the outcome is unknown, but nothing can have been changed.
func (at attempt) elsewhereIf(err error) error {
	var unknown *unknownError
	if errors.As(err, &unknown) && at.ctx.Err() == nil {
		return &elsewhereError{err}
	}
	return err
}

// logInAndSend makes a request with the token of a login, if there is one.
func (at attempt) logInAndSend(c call, into answer) error {
	if at.login == nil {
		err := at.send(c, "", into)
		if errors.Is(err, errChanged) {
			err = at.send(c, "", into)
		}
		if errors.Is(err, errToken) {
			return driver.Denied(err)
		}
		return err
	}
	authenticate := func() (string, error) {
		var a tokenAnswer
		err := at.send(call{method: methodAuthenticate, body: credentials{at.login.name, at.login.password}}, "", &a)
		return a.Token, err
	}
	number := 0
	for try := 0; ; try++ {
		token, now, err := at.login.token(at.limited, number, authenticate)
		if err != nil {
			return at.elsewhereIf(err) // the request itself was not sent
		}
		err = at.send(c, token, into)
		if !errors.Is(err, errToken) && !errors.Is(err, errChanged) {
			return err
		}
		if try == 1 {
			return inMember(at.member, errors.New("it refuses a login that has just begun"))
		}
		number = now
	}
}

// send makes one request.
func (at attempt) send(c call, token string, into answer) error {
	if at.sent != nil {
		at.sent()
	}
	used, done := at.members.use(at.member)
	defer done()
	began := time.Now()
	var tries atomic.Int32 // package net/http counts each before it writes
	traced := httptrace.WithClientTrace(at.limited, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { tries.Add(1) }})
	got, err := used.client.Send(traced, at.request(at.member, c.method, c.body, token))
	if err != nil {
		err = at.unanswered(used, began, tries.Load() > 0, err)
	} else {
		used.answered()
		var message []byte
		if message, err = messageOf(got); err == nil {
			err = at.read(c, message, into)
		}
	}
	var unknown *unknownError
	if err != nil && c.writes && tries.Load() > 1 && !errors.As(err, &unknown) { // the refusal of one try says nothing of those before it
		err = &unknownError{errors.New(driver.ErrorText(err))}
	}
	if err == nil || at.ctx.Err() != nil {
		return err
	}
	if errors.As(err, &unknown) {
		at.members.leave(at.member)
	}
	return inMember(at.member, err)
}

// read decodes an answer. It leaves into alone if the answer is that of another cluster: another member may be asked after it.
func (at attempt) read(c call, message []byte, into answer) error {
	var h headed
	if decode(message, &h) != nil {
		return &unknownError{errNoEtcd}
	}
	if !c.bare || h.Header.ClusterID != 0 {
		if err := at.members.note(at.member, h.Header.ClusterID); err != nil && c.writes {
			return errors.New(driver.ErrorText(err)) // it was done there
		} else if err != nil {
			return &elsewhereError{err}
		}
	}
	return decode(message, into)
}

// patience is how long a member may be silent, while callers give up, without counting as failed.
const patience = 250 * time.Millisecond

// unanswered is the error of a request without an answer.
func (at attempt) unanswered(used *connections, began time.Time, connected bool, err error) error {
	if at.limited.Err() != nil && !errors.Is(at.ctx.Err(), context.Canceled) {
		if connected {
			if used.unanswered(began) >= patience {
				at.members.silent(at.member, used)
			}
		} else if time.Since(began) >= patience { // the connection that is being made is for the next request
			at.members.leave(at.member)
		}
	}
	switch {
	case at.ctx.Err() != nil:
		return fmt.Errorf("%s has not answered: %w", at.member.name, at.ctx.Err())
	case at.limited.Err() != nil && connected:
		return &unknownError{errors.New("it has not answered in time")}
	case at.limited.Err() != nil:
		return &elsewhereError{errors.New("no connection was made in time")}
	case connected && !at.members.hasAnswered():
		return &unknownError{at.neverAnswered(err)}
	case connected:
		return &unknownError{err}
	}
	return &elsewhereError{err}
}

// neverAnswered is the error of a connection that has ended, while no member has answered yet.
func (at attempt) neverAnswered(err error) error {
	if strings.HasPrefix(at.member.url, "http:") {
		return fmt.Errorf("it has ended the connection without an answer of etcd (%w): if it demands TLS, the scheme is etcds; or is there "+
			"another server, or a proxy, at this address?", err)
	}
	return fmt.Errorf("it has ended the connection without an answer of etcd (%w): if it demands a certificate of clients, set %s and %s",
		err, serverurl.ParamCertFile, serverurl.ParamKeyFile)
}

// inMember names the member in an error.
func inMember(m *member, err error) error {
	var next *elsewhereError
	if errors.As(err, &next) {
		return &elsewhereError{driver.Errorf("%s: %w", m.name, next.error)}
	}
	return driver.Errorf("%s: %w", m.name, err)
}

// lookFor is how much longer the other members may take for an answer than the first one.
const lookFor = 500 * time.Millisecond

// compareClusters asks all members at the same time, and fails if those that answer belong to several clusters. One at least must answer.
//
// Promise 1: otherwise a program to which the first member does not answer would have locks of its own.
func (s *store) compareClusters(ctx context.Context) error {
	all, _ := s.members.order()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	errs, done := make([]error, len(all)), make(chan int)
	for i, m := range all {
		go func() { // it ends with the loop that follows
			errs[i] = s.askMember(limited, m, s.timeout, s.look(), &rangeAnswer{})
			done <- i
		}()
	}
	answered := false
	for range all {
		if i := <-done; errs[i] == nil && !answered {
			answered = true
			defer time.AfterFunc(lookFor, cancel).Stop()
		}
	}
	for i, err := range errs {
		if errors.Is(err, errOtherCluster) {
			return driver.Denied(fmt.Errorf("the addresses belong to several clusters: %w", err))
		}
		if err != nil {
			s.members.leave(all[i])
		}
	}
	switch {
	case answered:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return allFailed(errs)
}
