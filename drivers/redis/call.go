package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// do makes requests, and returns soon after the end of ctx: go-redis keeps the deadline of a context, and does not notice that it was
// canceled.
//
// Promise 5: unless they only read, its error is not lasting when ctx ends, whatever Sentinel refuses: a write may be on its way.
func do[T any](ctx context.Context, s *store, reads bool, requests func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	began, done := time.Now(), make(chan result, 1)
	s.calls.Go(func() {
		if s.config.sent != nil {
			s.config.sent()
		}
		value, err := requests(ctx)
		done <- result{value, err}
	})
	select {
	case r := <-done:
		return r.value, s.unanswered(classify(r.err))
	case <-ctx.Done():
		var none T
		switch why := s.servers.why(began); { // newer versions of go-redis dial again until ctx ends, and keep the reason
		case why == nil:
			return none, s.unanswered(ctx.Err())
		case reads:
			return none, fmt.Errorf("%w: %w", ctx.Err(), why)
		default:
			return none, fmt.Errorf("%w: %s", ctx.Err(), driver.ErrorText(why))
		}
	}
}

// exec makes the requests of a pipeline. Its error is that of the connection or of the login: some versions of go-redis do not set it on
// the commands. Otherwise each command has its own error of the server.
func exec(ctx context.Context, pipe goredis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	of := goredis.Error(nil)
	if errors.As(err, &of) && slices.ContainsFunc(commands, func(c goredis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return err
}

// dialer returns what connects to a server. With TLS, that of go-redis does not end with its context.
func dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout}
	if config == nil {
		return d.DialContext
	}
	return (&tls.Dialer{NetDialer: d, Config: config}).DialContext
}
