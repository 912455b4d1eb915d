package bench

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/drivers/mongo"
)

// Backend opens Lockers and counts their calls of the server. It is safe for concurrent use.
type Backend struct {
	url, scheme string
	calls       atomic.Int64

	mu     sync.Mutex
	memory holdfast.Locker // the store of "mem:", which all Lockers share
}

// NewBackend returns the backend at a URL. It does not connect.
func NewBackend(url string) *Backend {
	scheme, _, _ := strings.Cut(url, ":")
	scheme = strings.ToLower(scheme)
	if scheme == "mongodb+srv" {
		scheme = "mongodb"
	}
	return &Backend{url: url, scheme: scheme}
}

// URL returns the URL given to NewBackend. It can contain a password.
func (b *Backend) URL() string { return b.url }

// Kind returns the URL's scheme; "mongodb" for both schemes of MongoDB.
func (b *Backend) Kind() string { return b.scheme }

// Counted names what Calls counts: the commands or requests sent to a server, or, without a server,
// the calls of the Locker.
func (b *Backend) Counted() string {
	switch b.scheme {
	case "mongodb":
		return "commands"
	case "azblob":
		return "requests"
	default:
		return "calls"
	}
}

// Calls returns the number so far, of all Lockers.
func (b *Backend) Calls() int64 { return b.calls.Load() }

// Open returns a Locker with connections of its own.
func (b *Backend) Open(ctx context.Context) (holdfast.Locker, error) {
	switch b.scheme {
	case "mongodb":
		return asLocker(mongo.Open(ctx, b.url, mongo.WithLogger(noLog), mongo.WithMonitor(&event.CommandMonitor{
			Started: func(context.Context, *event.CommandStartedEvent) { b.calls.Add(1) },
		})))
	case "azblob":
		return asLocker(azblob.Open(ctx, b.url, azblob.WithLogger(noLog), azblob.WithPolicies(requestCount{&b.calls})))
	case "mem":
		return b.openMemory(ctx)
	default:
		l, err := driver.Open(ctx, b.url)
		if err != nil {
			return nil, err
		}
		return counted{l, &b.calls}, nil
	}
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

// asLocker returns a nil interface after an error: a nil pointer in it would not be nil.
func asLocker[L holdfast.Locker](l L, err error) (holdfast.Locker, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openMemory returns Lockers that share one store, as on a server.
func (b *Backend) openMemory(ctx context.Context) (holdfast.Locker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil {
		l, err := driver.Open(ctx, b.url)
		if err != nil {
			return nil, err
		}
		b.memory = l
	}
	return counted{unclosed{b.memory}, &b.calls}, nil
}

// unclosed is a Locker whose Close does nothing, because others still use it.
type unclosed struct{ holdfast.Locker }

func (unclosed) Close(context.Context) error { return nil }

type requestCount struct{ calls *atomic.Int64 }

func (c requestCount) Do(req *policy.Request) (*http.Response, error) {
	c.calls.Add(1)
	return req.Next()
}

// counted counts those calls of a Locker that reach the backend.
type counted struct {
	holdfast.Locker
	calls *atomic.Int64
}

func (c counted) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	c.calls.Add(1)
	return c.Locker.TryAcquire(ctx, req)
}

func (c counted) Renew(ctx context.Context, l holdfast.Lease) error {
	c.calls.Add(1)
	return c.Locker.Renew(ctx, l)
}

func (c counted) Release(ctx context.Context, l holdfast.Lease) error {
	c.calls.Add(1)
	return c.Locker.Release(ctx, l)
}

func (c counted) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	c.calls.Add(1)
	return c.Locker.Inspect(ctx, name)
}

// Capabilities returns those of the Locker. Calls of the ones that a Client uses by itself are
// counted.
func (c counted) Capabilities() driver.Capabilities {
	a := c.Locker.Capabilities()
	if a.HandOverer != nil {
		a.HandOverer = countedHandOverer{a.HandOverer, c.calls}
	}
	if a.BatchRenewer != nil {
		a.BatchRenewer = countedRenewer{a.BatchRenewer, c.calls}
	}
	if a.BatchInspector != nil {
		a.BatchInspector = countedInspector{a.BatchInspector, c.calls}
	}
	return a
}

type countedHandOverer struct {
	driver.HandOverer
	calls *atomic.Int64
}

func (c countedHandOverer) HandOver(ctx context.Context, from holdfast.Lease, req driver.Request) (holdfast.Lease, error) {
	c.calls.Add(1)
	return c.HandOverer.HandOver(ctx, from, req)
}

type countedRenewer struct {
	driver.BatchRenewer
	calls *atomic.Int64
}

func (c countedRenewer) RenewBatch(ctx context.Context, leases []holdfast.Lease) []error {
	c.calls.Add(1)
	return c.BatchRenewer.RenewBatch(ctx, leases)
}

type countedInspector struct {
	driver.BatchInspector
	calls *atomic.Int64
}

func (c countedInspector) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	c.calls.Add(1)
	return c.BatchInspector.InspectBatch(ctx, names)
}
