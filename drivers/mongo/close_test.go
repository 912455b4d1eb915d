package mongo

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A frozen server does not delay Close or a Client's Shutdown beyond their context, with and
// without a cursor on the hints. All limits of the Lockers themselves are so long that only the context can end them.
func TestCloseOnAFrozenServer(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	unlimited := func(l *Locker) *Locker {
		l.queue.timeout = time.Hour
		return l
	}
	open := func() *Locker {
		l, err := Open(bounded(t), urlOf(rs.URI(), coll), WithLogger(discard), WithCommandTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return unlimited(l)
	}
	watching, late, ended := open(), open(), open()
	own := unlimited(newTestLocker(t, coll, WithCommandTimeout(time.Hour)))
	client, err := holdfast.New(open(), holdfast.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Locker{watching, own} {
		defer l.Wake("n", me, func(driver.Wakeup) {})()
		eventually(t, "an open cursor", l.queue.isOpen)
	}
	for _, l := range []driver.Locker{late, ended, client.Locker()} { // creates sessions to end
		if _, err := l.Inspect(bounded(t), "n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := rs.Pause(0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rs.Resume(0); err != nil {
			t.Error(err)
		}
	}()
	type closing struct {
		what string
		err  error
	}
	results := make(chan closing, 5)
	for what, end := range map[string]func(context.Context) error{
		"with a cursor": watching.Close, "without one": late.Close, "of New": own.Close, "Shutdown": client.Shutdown,
	} {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Second)
			defer cancel()
			results <- closing{what, end(ctx)}
		}()
	}
	go func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		results <- closing{"ended before", ended.Close(ctx)}
	}()
	over := time.After(waitLimit)
	for left := 5; left > 0; left-- {
		select {
		case r := <-results:
			if r.err != nil {
				t.Errorf("%s: %v", r.what, r.err)
			}
		case <-over:
			t.Fatalf("%d of the Lockers are still being closed", left)
		}
	}
}

// A client that the program disconnects before Shutdown is closed for good: one failure of
// each release is logged, and nothing waits for leases to expire.
func TestDisconnectedClientIsClosed(t *testing.T) {
	coll := mongotest.Collection(t)
	program, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI(t)))
	if err != nil {
		t.Fatal(err)
	}
	locks := through(program, coll)
	var warnings atomic.Int64
	c, err := holdfast.New(newTestLocker(t, locks), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithObserver(func(e holdfast.Event) {
			if e.Type == holdfast.EventError {
				warnings.Add(1)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(bounded(t), "n", holdfast.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Disconnect(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.Shutdown(bounded(t)); err != nil { // the lease lasts longer than this context
		t.Errorf("Shutdown: %v", err)
	}
	if err := h.Release(bounded(t)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Release: %v", err)
	}
	if n := warnings.Load(); n > 2 {
		t.Errorf("%d warnings", n)
	}
}

// Close interrupts running calls, keeps the program's client connected, and makes every later
// call fail.
func TestClose(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, request("n", "a"))
	closeLocker(t, l)
	closeLocker(t, l)
	if _, err := l.TryAcquire(bounded(t), request("n", "b")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("got %v, want closed", err)
	}
	if err := coll.Database().Client().Ping(bounded(t), nil); err != nil {
		t.Errorf("the program's client: %v", err)
	}
}

// Close interrupts a call whose answer does not come, also on the program's own client.
func TestCloseCutsOffACall(t *testing.T) {
	t.Parallel()
	dialer := newDelayingDialer()
	l := newTestLocker(t, mongotest.CollectionOf(t, dialer.client(t)), WithCommandTimeout(time.Hour))
	ctx := context.WithoutCancel(t.Context())
	dialer.delayNext("findAndModify\x00", "cut off")
	answer := make(chan error, 1)
	go func() {
		_, err := l.TryAcquire(ctx, request("cut off", "a"))
		answer <- err
	}()
	delayed := <-dialer.delayed
	closeLocker(t, l)
	select {
	case err := <-answer:
		wantUnknown(t, err)
		if !strings.Contains(err.Error(), "interrupted by Close") {
			t.Error(err)
		}
	case <-time.After(waitLimit):
		t.Error("the call goes on")
	}
	if _, err := delayed.deliver(); err != nil { // this closes the connection, too
		t.Error(err)
	}
}
