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

// actor is a client whose events are recorded; it is shut down with the test.
type actor struct {
	*holdfast.Client
	tb testing.TB

	mu     sync.Mutex
	events []holdfast.Event
}

// actor makes a client of the target's, whose requests go through a link if there is one.
func (b target) actor(tb testing.TB, through *link, opts ...holdfast.ClientOption) *actor {
	tb.Helper()
	return newActor(tb, b.locker(tb, through), append([]holdfast.ClientOption{holdfast.WithTTL(b.ttl), holdfast.WithGrace(b.ttl / 3)}, opts...)...)
}

// calm makes a client for bystanders, whose holds do not end because the machine is slow:
// their leases are long, and yet they hear soon of one that was taken from them.
func (b target) calm(tb testing.TB) *actor {
	tb.Helper()
	return b.actor(tb, nil, holdfast.WithTTL(4*b.ttl), holdfast.WithRenewEvery(b.ttl/5))
}

func newActor(tb testing.TB, locker holdfast.Locker, opts ...holdfast.ClientOption) *actor {
	tb.Helper()
	a := &actor{tb: tb}
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
			for _, e := range a.told() {
				tb.Logf("%s %v", e.Time.Format("05.000"), e)
			}
		}
	})
	return a
}

func (a *actor) observe(e holdfast.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

func (a *actor) told() []holdfast.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// count tells how many events of a kind there were; op is empty or the call that failed.
func (a *actor) count(kind holdfast.EventType, op string) (n int) {
	for _, e := range a.told() {
		if e.Type == kind && (op == "" || e.Op == op) {
			n++
		}
	}
	return n
}

// lock waits for the lock.
func (a *actor) lock(name string, opts ...holdfast.Option) *holdfast.Hold {
	a.tb.Helper()
	h, err := a.Lock(bounded(a.tb), name, opts...)
	if err != nil {
		a.tb.Fatalf("lock: %v", err)
	}
	return h
}

// record is what the backend has of a name.
func (a *actor) record(name string) holdfast.Record {
	a.tb.Helper()
	ctx := bounded(a.tb)
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

// await waits until the backend's record of a name is as wanted.
func (a *actor) await(what, name string, wanted func(holdfast.Record) bool) holdfast.Record {
	a.tb.Helper()
	var r holdfast.Record
	eventually(a.tb, what, func() bool { r = a.record(name); return wanted(r) })
	return r
}

func held(r holdfast.Record) bool { return r.State == driver.StateHeld }
func free(r holdfast.Record) bool { return r.State == driver.StateFree }

// order sees to it, from outside, that holds of one name do not overlap and that their
// tokens rise. All of them are of this process, and so judged by one clock.
type order struct {
	tb testing.TB

	mu    sync.Mutex
	last  *holdfast.Hold
	token uint64
}

// enter notes a new hold: those before must have ended by now.
func (o *order) enter(h *holdfast.Hold) *holdfast.Hold {
	o.tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Token() <= o.token {
		o.tb.Errorf("token %d came after %d", h.Token(), o.token)
	}
	if o.last != nil && o.last.Context().Err() == nil && h.Err() == nil {
		o.tb.Errorf("the holds with the tokens %d and %d are live at once", o.token, h.Token())
	}
	o.last, o.token = h, h.Token()
	return h
}

// ended waits for the end of a hold and returns the cause.
func ended(tb testing.TB, h *holdfast.Hold) error {
	tb.Helper()
	select {
	case <-h.Context().Done():
		return context.Cause(h.Context())
	case <-time.After(patience):
		tb.Fatal("the hold does not end")
		return nil
	}
}

// release gives a lock back, which must not take for ever.
func release(tb testing.TB, h *holdfast.Hold) {
	tb.Helper()
	if err := h.Release(bounded(tb)); err != nil {
		tb.Errorf("release: %v", err)
	}
}
