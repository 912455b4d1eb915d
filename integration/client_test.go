package integration

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// testClient is a client that records its events. It is shut down at the end of the test.
type testClient struct {
	*holdfast.Client
	tb testing.TB

	mu     sync.Mutex
	events []holdfast.Event
}

// client makes a client of the backend. Its requests go through a faulty network if one is given.
func (b backend) client(tb testing.TB, through *faultyNetwork, opts ...holdfast.ClientOption) *testClient {
	tb.Helper()
	return newTestClient(tb, b.locker(tb, through), append([]holdfast.ClientOption{holdfast.WithTTL(b.ttl), holdfast.WithGrace(b.ttl / 3)},
		opts...)...)
}

// longTTLClient makes a client for other participants of a scenario. Its long TTL keeps a slow
// machine from ending their holds; frequent renewals soon detect a lease that was taken from
// them.
func (b backend) longTTLClient(tb testing.TB) *testClient {
	tb.Helper()
	return b.client(tb, nil, holdfast.WithTTL(4*b.ttl), holdfast.WithRenewEvery(b.ttl/5))
}

func newTestClient(tb testing.TB, locker holdfast.Locker, opts ...holdfast.ClientOption) *testClient {
	tb.Helper()
	a := &testClient{tb: tb}
	opts = append([]holdfast.ClientOption{
		holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(a.observe), holdfast.WithPollInterval(time.Second),
	}, opts...)
	client, err := holdfast.New(locker, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	a.Client = client
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			tb.Errorf("shutdown: %v", err)
		}
		if tb.Failed() {
			for _, e := range a.recorded() {
				tb.Logf("%s %v", e.Time.Format("05.000"), e)
			}
		}
	})
	return a
}

func (a *testClient) observe(e holdfast.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

func (a *testClient) recorded() []holdfast.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// count returns how many events of a kind there were. op names the call that failed; empty means
// any.
func (a *testClient) count(kind holdfast.EventType, op string) (n int) {
	for _, e := range a.recorded() {
		if e.Type == kind && (op == "" || e.Op == op) {
			n++
		}
	}
	return n
}

// lock waits for the lock.
func (a *testClient) lock(name string, opts ...holdfast.Option) *holdfast.Hold {
	a.tb.Helper()
	h, err := a.Lock(testContext(a.tb), name, opts...)
	if err != nil {
		a.tb.Fatalf("lock: %v", err)
	}
	return h
}

// record returns the backend's record of a name.
func (a *testClient) record(name string) holdfast.Record {
	a.tb.Helper()
	ctx := testContext(a.tb)
	for {
		r, err := a.Inspect(ctx, name)
		switch {
		case err == nil:
			return r
		case ctx.Err() != nil:
			a.tb.Fatalf("inspect: %v", err)
		}
	}
}

// awaitRecord waits until the backend's record of a name satisfies a condition.
func (a *testClient) awaitRecord(what, name string, wanted func(holdfast.Record) bool) holdfast.Record {
	a.tb.Helper()
	var r holdfast.Record
	eventually(a.tb, what, func() bool { r = a.record(name); return wanted(r) })
	return r
}

func held(r holdfast.Record) bool { return r.State == driver.StateHeld }
func free(r holdfast.Record) bool { return r.State == driver.StateFree }

// exclusionChecker checks that holds of one name do not overlap and that their tokens rise. All
// holds belong to this process, so one clock judges them.
type exclusionChecker struct {
	tb testing.TB

	mu    sync.Mutex
	last  *holdfast.Hold
	token uint64
}

// check adds a new hold. Every earlier one must have ended by now.
func (o *exclusionChecker) check(h *holdfast.Hold) *holdfast.Hold {
	o.tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Token() <= o.token {
		o.tb.Errorf("token %d was granted after token %d", h.Token(), o.token)
	}
	if o.last != nil && o.last.Context().Err() == nil && h.Err() == nil {
		o.tb.Errorf("the holds with tokens %d and %d are live at the same time", o.token, h.Token())
	}
	o.last, o.token = h, h.Token()
	return h
}

// awaitEnd waits for the end of a hold and returns the cause.
func awaitEnd(tb testing.TB, h *holdfast.Hold) error {
	tb.Helper()
	select {
	case <-h.Context().Done():
		return context.Cause(h.Context())
	case <-time.After(waitLimit):
		tb.Fatal("the hold did not end")
		return nil
	}
}

// release releases a hold within the time limit.
func release(tb testing.TB, h *holdfast.Hold) {
	tb.Helper()
	if err := h.Release(testContext(tb)); err != nil {
		tb.Errorf("release: %v", err)
	}
}
