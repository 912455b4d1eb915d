package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// login has the token of a user. Every member accepts it, for some minutes or until it has started again.
type login struct {
	name, password string

	mu      sync.Mutex
	current string
	number  int           // of the token; 0 if there is none
	running chan struct{} // closed when the login that is under way has ended; nil if none is
}

// token returns a token and its number. One with the number refused, or an earlier one, is replaced by authenticate, which one of the
// callers calls at a time. A cluster without authentication takes requests without a token.
func (l *login) token(ctx context.Context, refused int, authenticate func() (string, error)) (string, int, error) {
	for {
		l.mu.Lock()
		token, number, running := l.current, l.number, l.running
		first := running == nil
		if number <= refused && first {
			running = make(chan struct{})
			l.running = running
		}
		l.mu.Unlock()
		if number > refused {
			return token, number, nil
		}
		if first {
			token, err := authenticate()
			if err != nil && strings.Contains(err.Error(), "authentication is not enabled") {
				token, err = "", nil
			}
			l.mu.Lock()
			if err == nil {
				l.current, l.number = token, l.number+1
			}
			number, l.running = l.number, nil
			l.mu.Unlock()
			close(running)
			return token, number, err
		}
		select {
		case <-running:
		case <-ctx.Done():
			return "", 0, &elsewhereError{errors.New("another request has not logged in in time")}
		}
	}
}

// latest is the latest token, or nothing.
func (l *login) latest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}
