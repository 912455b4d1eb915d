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
// without a change stream.
func TestCloseOnAFrozenServer(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	const asked = 2 * time.Second
	within := func(ctx context.Context, shut func(context.Context) error) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, asked)
		defer cancel()
		start := time.Now()
		err := shut(ctx)
		return time.Since(start), err
	}
	open := func() *Locker {
		l, err := Open(bounded(t), urlOf(rs.URI(), coll), WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	watching, late, ended := open(), open(), open()
	own := newTestLocker(t, coll)
	client, err := holdfast.New(open(), holdfast.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Locker{watching, own} {
		inEffect := make(chan struct{}, 100)
		defer l.Capabilities().Waker.Wake("n", "", func(driver.Wakeup) { inEffect <- struct{}{} })()
		select {
		case <-inEffect:
		case <-bounded(t).Done():
			t.Fatal("the stream is not in effect")
		}
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
		what  string
		limit time.Duration
		took  time.Duration
		err   error
	}
	results := make(chan closing)
	for what, end := range map[string]func(context.Context) error{
		"with a stream": watching.Close, "without a stream": late.Close, "of New": own.Close, "Shutdown": client.Shutdown,
	} {
		go func() {
			took, err := within(context.WithoutCancel(t.Context()), end)
			results <- closing{what, asked, took, err}
		}()
	}
	go func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		start := time.Now()
		err := ended.Close(ctx)
		results <- closing{"ended before", 0, time.Since(start), err}
	}()
	const slack = 4 * time.Second // for a busy machine; without its context, Close would take 10 s
	for range 5 {
		r := <-results
		if r.err != nil || r.took > r.limit+slack {
			t.Errorf("%s: took %v, error %v", r.what, r.took, r.err)
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
	locks := program.Database(coll.Database().Name()).Collection(coll.Name())
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
	h, err := c.Lock(bounded(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Disconnect(bounded(t)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(start); took > 15*time.Second { // the lease lasts 30 s
		t.Errorf("Shutdown took %v", took)
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
	l := newTestLocker(t, mongotest.CollectionOf(t, dialer.client(t)), WithCommandTimeout(30*time.Second))
	ctx := bounded(t)
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
	case <-time.After(10 * time.Second):
		t.Error("the call goes on")
	}
	if _, err := delayed.deliver(); err != nil { // this closes the connection, too
		t.Error(err)
	}
}
