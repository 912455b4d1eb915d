package mongo

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The server logs a connection out when its user is dropped, also if one of the same name is made at once. It then
// answers every command of this connection that it requires authentication, forever: the Go driver logs in only when it
// makes a connection. That is not a missing privilege, which has the same code.

// requiresLogin reports whether the server answered that a connection is not logged in: "Command find requires authentication". The
// text of a missing privilege repeats the command, in which a lock's name or owner can have any words.
func requiresLogin(err error) bool {
	var answer mongo.CommandError
	return errors.As(err, &answer) && answer.Code == codeUnauthorized && strings.HasSuffix(answer.Message, "requires authentication")
}

// loggedOut describes the answer requiresLogin of a call that began at the time, on a Locker that was logged in before.
// curable reports whether the next call logs in again.
func (l *Locker) loggedOut(err error, began time.Time) (curable bool, described error) {
	const text = "the server has logged out this connection, because its user was dropped, or dropped and made again; "
	switch {
	case l.sockets != nil:
		l.sockets.closeOlder(began)
		return true, &deniedError{text + "it is replaced, and the next request logs in again", err}
	case l.dial == nil:
		return false, &deniedError{text + "the Go driver does not log it in again: the program needs a new client", err}
	}
	return false, err // the URL has no user: the server has begun to require one
}

// sockets are the connections of a client that [Open] made and that logs in. The Go driver replaces one that is closed.
type sockets struct {
	dialer net.Dialer

	mu   sync.Mutex // never held across I/O
	open map[*socket]time.Time
}

// watchSockets has a client that is not yet connected make its connections by the result. It returns nil for a client
// that does not log in.
func watchSockets(client *options.ClientOptions) *sockets {
	if client.Auth == nil || client.Dialer != nil {
		return nil
	}
	s := &sockets{open: map[*socket]time.Time{}}
	client.SetDialer(s)
	return s
}

// DialContext implements [options.ContextDialer].
func (s *sockets) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	made := &socket{conn, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[made] = time.Now()
	return made, nil
}

// closeOlder closes the connections that were made before the time. Later ones have logged in since.
func (s *sockets) closeOlder(than time.Time) {
	var older []*socket
	s.mu.Lock()
	for c, made := range s.open {
		if made.Before(than) {
			older = append(older, c)
		}
	}
	s.mu.Unlock()
	for _, c := range older {
		_ = c.Close() // the Go driver notices it
	}
}

type socket struct {
	net.Conn
	of *sockets
}

// Close closes the connection, which its owner may have done already.
func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
