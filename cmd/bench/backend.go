package bench

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Backend opens Lockers and counts their calls of the server. It is safe for concurrent use.
type Backend struct {
	url   string
	about driver.Description // without a driver for the URL the zero value; driver.Open returns the error
	calls atomic.Int64

	mu     sync.Mutex
	shared holdfast.Locker // with locks of one process, all Lockers have to be one
}

// NewBackend returns the backend at a URL. It does not connect.
func NewBackend(url string) *Backend {
	about, _ := driver.Describe(url)
	return &Backend{url: url, about: about}
}

// URL returns the URL given to NewBackend. It can contain a password.
func (b *Backend) URL() string { return b.url }

// Kind returns the main scheme of the URL's driver, such as "mongodb" for both schemes of MongoDB.
func (b *Backend) Kind() string {
	if len(b.about.Schemes) > 0 {
		return b.about.Schemes[0]
	}
	scheme, _, _ := strings.Cut(b.url, ":")
	return strings.ToLower(scheme)
}

// Counted names what Calls counts: the commands or requests sent to a server, or, if the driver does not
// count them, the calls of the Locker.
func (b *Backend) Counted() string {
	if b.about.Requests != "" {
		return b.about.Requests
	}
	return "calls"
}

// Calls returns the number so far, of all Lockers.
func (b *Backend) Calls() int64 { return b.calls.Load() }

// Open returns a Locker with connections of its own.
func (b *Backend) Open(ctx context.Context) (holdfast.Locker, error) {
	if b.about.Reach == driver.ReachProcess {
		return b.openShared(ctx)
	}
	return b.open(ctx)
}

func (b *Backend) open(ctx context.Context) (holdfast.Locker, error) {
	if b.about.OpenCounted != nil {
		return b.about.OpenCounted(ctx, b.url, func() { b.calls.Add(1) })
	}
	l, err := driver.Open(ctx, b.url)
	if err != nil {
		return nil, err
	}
	return counted(l, &b.calls), nil
}

// Client returns a client with a Locker of its own. It does not log.
func (b *Backend) Client(ctx context.Context, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	l, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(l, append([]holdfast.ClientOption{holdfast.WithLogger(noLog)}, opts...)...)
	if err != nil {
		_ = l.Close(ctx) // nothing has used it
		return nil, err
	}
	return c, nil
}

var noLog = slog.New(slog.DiscardHandler)

// openShared returns Lockers that share one store, as on a server.
func (b *Backend) openShared(ctx context.Context) (holdfast.Locker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shared == nil {
		l, err := b.open(ctx)
		if err != nil {
			return nil, err
		}
		b.shared = l
	}
	return unclosed{b.shared}, nil
}

// unclosed is a Locker whose Close does nothing, because others still use it.
type unclosed struct{ holdfast.Locker }

func (unclosed) Close(context.Context) error { return nil }

// counted counts those calls of a Locker that reach the backend.
func counted(l holdfast.Locker, calls *atomic.Int64) holdfast.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if call.Wake == nil && call.Method != driver.MethodClose {
			calls.Add(1)
		}
		return next(ctx, call)
	})
}
