package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const (
	// opTimeout limits a whole operation whose context has no earlier deadline.
	opTimeout = 15 * time.Second
	// dataRate, in bytes per second, is the assumed speed of a slow line. Time limits grow
	// with the data accordingly.
	dataRate   = 1 << 20
	maxRetries = 3
)

// op describes a call for its errors and time limit.
type op struct {
	verb, name string
	invalid    error // of the arguments
	size       int   // of the call's data
}

// do runs the requests of one operation, as run does, and wraps their error in an OpError.
func (l *Locker) do(ctx context.Context, o op, requests func(context.Context) error) error {
	return driverutil.OpError(o.verb, backend, o.name, l.run(ctx, o, requests))
}

func (l *Locker) run(ctx context.Context, o op, requests func(context.Context) error) (err error) {
	if l.closing.Err() != nil {
		return driver.ErrClosed
	}
	if o.invalid != nil {
		return o.invalid
	}
	limited, cancel := context.WithTimeout(ctx, opTimeout+transferTime(o.size))
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	sent := tries{began: time.Now()}
	limited = context.WithValue(limited, triesKey{}, &sent)
	defer func() {
		if sent.none.Load() {
			err = driverutil.Unsent(err)
		}
	}()
	err = limited.Err()
	sent.none.Store(err != nil)
	if err == nil {
		err = redact(requests(limited))
		l.addSAS(err)
	}
	if ctx.Err() == nil && l.closing.Err() == nil && o.verb != "acquire" && !sent.inDoubt.Load() {
		err = l.denied(limited, err) // acquire itself knows whether it is certain
	}
	if err != nil && err.Error() == context.DeadlineExceeded.Error() {
		err = fmt.Errorf("no answer within the time limit: %w", err)
	}
	switch cause := context.Cause(ctx); {
	case err == nil, driver.OutcomeKnown(err):
		return err
	case ctx.Err() != nil:
		if !errors.Is(err, ctx.Err()) {
			err = driver.Errorf("%w: %w", ctx.Err(), err)
		}
		if driver.OutcomeKnown(cause) {
			// Promise 4: the loss of another lock is no loss of this one.
			err = driver.Errorf("%w (%s)", err, driver.ErrorText(cause))
		} else if !errors.Is(err, cause) {
			err = driver.Errorf("%w (%w)", err, cause)
		}
	case l.closing.Err() != nil:
		err = driver.Errorf("interrupted by Close: %w", err)
	}
	return err
}

// tries is what happened to the requests of one operation. A request that the service refused for want
// of a right changed nothing, but an earlier try of it may have.
type tries struct {
	inDoubt atomic.Bool // a request was sent again although an earlier try may have been processed
	none    atomic.Bool // nothing was sent, by none of the tries
	began   time.Time
}

type triesKey struct{}

// noteDoubt says that a request of the present operation may have been processed, whatever the next ones are answered.
func noteDoubt(ctx context.Context) {
	if sent, ok := ctx.Value(triesKey{}).(*tries); ok {
		sent.inDoubt.Store(true)
	}
}

// isInDoubt reports whether a request of the present operation may have been processed without an answer.
func isInDoubt(ctx context.Context) bool {
	sent, ok := ctx.Value(triesKey{}).(*tries)
	return ok && sent.inDoubt.Load()
}

// forgetDoubt says that the requests of the present operation so far have changed nothing.
func forgetDoubt(ctx context.Context) {
	if sent, ok := ctx.Value(triesKey{}).(*tries); ok {
		sent.inDoubt.Store(false)
	}
}

// repeatedFor are the answers after which a request is sent again: those of the SDK's default.
var repeatedFor = []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// withRetries makes the SDK send a failed request again. Whatever the client's settings are,
// each attempt has a time limit, and none begins after the context's end. If the service asks
// to wait longer than that (Retry-After), its refusal is returned at once.
func (l *Locker) withRetries(ctx context.Context, size int) context.Context {
	sent, _ := ctx.Value(triesKey{}).(*tries)
	return l.withTries(ctx, size, func(answer *http.Response, err error) bool {
		again := failed(answer, err)
		if again && sent != nil && !refused(answer, err) {
			sent.inDoubt.Store(true)
		}
		return again
	})
}

// failed reports whether a request got no answer, or one after which it is sent again.
func failed(answer *http.Response, err error) bool {
	return err != nil || slices.Contains(repeatedFor, answer.StatusCode)
}

// retryIfRefused makes the SDK send a request again only if the service answered that it did
// not process it. After any other failure the request may still arrive.
func (l *Locker) retryIfRefused(ctx context.Context) context.Context {
	return l.withTries(ctx, 0, refused)
}

// refused reports whether the service answered that it was too busy to process a request.
func refused(answer *http.Response, err error) bool {
	return err == nil && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable &&
		answer.Header.Get("x-ms-error-code") == string(bloberror.ServerBusy))
}

// withoutRetries makes the SDK send a request once.
func (l *Locker) withoutRetries(ctx context.Context) context.Context {
	return l.withTries(ctx, 0, func(*http.Response, error) bool { return false })
}

func (l *Locker) withTries(ctx context.Context, size int, again func(*http.Response, error) bool) context.Context {
	deadline, _ := ctx.Deadline() // run has set one
	return policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries:    maxRetries,
		TryTimeout:    l.config.requestTimeout + transferTime(size),
		RetryDelay:    100 * time.Millisecond,
		MaxRetryDelay: max(time.Until(deadline), time.Millisecond),
		ShouldRetry: func(answer *http.Response, err error) bool {
			l.hadToken.Store(true) // the SDK asks only about requests that it could authorize
			failForeign(answer, err)
			return again(answer, err)
		},
	})
}

// failForeign makes the SDK fail a request to which another server has answered with a success: a proxy, or where the program's transport
// was redirected. The SDK compares nothing but the status. It asks about each answer whether to repeat the request, also in a client of the
// program; that is the place for this. Every success of the service has its version; request IDs are also in answers of Azure's login.
func failForeign(answer *http.Response, err error) {
	if err == nil && answer.StatusCode < http.StatusMultipleChoices && answer.Header.Get("x-ms-version") == "" {
		answer.StatusCode = http.StatusNonAuthoritativeInfo // the service never answers that
	}
}

func transferTime(size int) time.Duration {
	return time.Duration(size) * time.Second / dataRate
}

// traceConnections returns a context for one request of the SDK. After an error, unsent reports whether the request certainly never
// left the process, with all repetitions of it by the SDK, the program's policies and Go's transport: that has looked for a
// connection, and has got none. A transport of the program that is not Go's reports nothing, so nothing is certain
// then. The requests of a program's own identity count, too, which only makes the outcome unknown more often.
func traceConnections(ctx context.Context) (traced context.Context, unsent func(error) bool) {
	var looked, got atomic.Bool // a dial can go on after the request has failed
	traced = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { looked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	})
	return traced, func(err error) bool {
		var unsent *unsentError
		return errors.As(err, &unsent) || err != nil && looked.Load() && !got.Load()
	}
}

// noteUnsent says that the present operation has sent nothing, and ends.
func noteUnsent(ctx context.Context) {
	if sent, ok := ctx.Value(triesKey{}).(*tries); ok {
		sent.none.Store(true)
	}
}
