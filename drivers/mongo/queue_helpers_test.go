package mongo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// hintsOnly makes waiters that poll so rarely that only hints can wake them in a test. No lease of
// such a test may end in it.
var hintsOnly = holdfast.WithPollInterval(time.Hour)

// long is the TTL of leases that do not end in a test.
const long = 12 * time.Hour

func longRequest(name, id string) driver.Request {
	req := request(name, id)
	req.TTL = long
	return req
}

// newProcess returns the client of one more process, with its Locker.
func newProcess(t *testing.T, coll *mongo.Collection, opts ...holdfast.ClientOption) (*holdfast.Client, *Locker) {
	t.Helper()
	l := newTestLocker(t, coll)
	return newClient(t, l, append([]holdfast.ClientOption{holdfast.WithTTL(long)}, opts...)...), l
}

// newClient returns a client with a Locker.
func newClient(t *testing.T, l *Locker, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	return locktest.NewClient(t, l, opts...)
}

func mustLock(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	t.Helper()
	h, err := c.Lock(bounded(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// lockSoon waits for a lock on another goroutine. The result has one value.
func lockSoon(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.Option) <-chan *holdfast.Hold {
	t.Helper()
	got := make(chan *holdfast.Hold, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		switch h, err := c.Lock(ctx, name, opts...); {
		case err == nil:
			got <- h
		case ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed): // else the test has ended the waiting
			t.Errorf("waiting for %s: %v", name, err)
			close(got)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return got
}

func awaitHold(t *testing.T, got <-chan *holdfast.Hold, what string) *holdfast.Hold {
	t.Helper()
	select {
	case h, waits := <-got:
		if !waits {
			t.Fatalf("it has given up: %s", what)
		}
		return h
	case <-time.After(waitLimit):
		t.Fatalf("not granted: %s", what)
		return nil
	}
}

// awaitFollowed waits until a Locker has a position in the queue and its cursor on the hints is open.
func awaitFollowed(t *testing.T, l *Locker, name string) {
	t.Helper()
	eventually(t, "a position and an open cursor", func() bool {
		return positionOf(t, l, name) > 0 && l.queue.isOpen()
	})
}

// positionOf returns the first position that waiters of a Locker have in a queue, or 0.
func positionOf(t *testing.T, l *Locker, name string) int {
	t.Helper()
	return 1 + slices.IndexFunc(storedQueue(t, l.majority, name), func(id string) bool { return strings.HasPrefix(id, l.id) })
}

// placeIn returns what stands for the waiter of a Locker in a queue.
func placeIn(t *testing.T, l *Locker, name string) string {
	t.Helper()
	return storedQueue(t, l.majority, name)[positionOf(t, l, name)-1]
}

// wokenBy returns a channel that gets a value when a hint wakes the waiter of a Locker.
func wokenBy(t *testing.T, l *Locker, name string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 1)
	t.Cleanup(l.Wake(name, me, func(w driver.Wakeup) {
		if w.Kind == driver.MayBeFree {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}))
	return woken
}

func wantWoken(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(waitLimit):
		t.Errorf("nobody was woken: %s", what)
	}
}

func (w *watcher) isOpen() bool { return !w.OpenSince().IsZero() }

// enterQueue takes a position for a waiter that will never come.
func enterQueue(t *testing.T, coll *mongo.Collection, name string) {
	t.Helper()
	req := request(name, "a waiter that dies")
	req.QueueFor = time.Hour
	if r := wantHeld(t, newTestLocker(t, coll), req); r.Position == 0 {
		t.Fatalf("no position: %+v", r)
	}
}
