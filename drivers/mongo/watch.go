package mongo

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const (
	// cursorTimeout limits each request for hints, so that a frozen server cannot block it.
	cursorTimeout = 10 * time.Second
	// retryPermanent is the backoff after a failure that a person must resolve, by granting a
	// privilege, or changing a setting or a name.
	retryPermanent = 10 * time.Minute
)

// source is where a watcher reads hints.
type source struct {
	await time.Duration // how long the server holds a request for hints
	open  func(ctx context.Context) (eventCursor, error)
}

// eventCursor is a cursor whose requests wait on the server for hints.
type eventCursor interface {
	// TryNext returns false if no hint has come while the server held the request, or after an
	// error.
	TryNext(ctx context.Context) bool
	Err() error // also if the server has ended the cursor
	Close(ctx context.Context) error
	// wakes returns whom the hint wakes, and how long that waiter must let others go first (after). ok is
	// false for a document that is no hint for this Locker.
	wakes() (key waitqueue.Key, after time.Duration, ok bool)
}

// watcher wakes the waiters of a Locker: it reads one cursor for all of them, open while there are some.
type watcher struct {
	*waitqueue.Follower
	source      source
	connections *connections // of the client; nil in tests that need none
	namespace   string
	logger      *slog.Logger
	closeCtx    context.Context // for closing the cursor on the server; ends with close's context
	cancelClose context.CancelFunc
	wg          sync.WaitGroup // waits for the Follower's goroutine
	warned      bool           // whether the present failure was logged; used by that goroutine only
	timeout     time.Duration  // cursorTimeout, other in tests
	usable      func() bool    // whether the cursor is open, or has not failed to be opened
}

func newWatcher(from source, namespace string, logger *slog.Logger, settings waitqueue.Settings) *watcher {
	w := &watcher{source: from, namespace: namespace, logger: logger, timeout: cursorTimeout}
	w.closeCtx, w.cancelClose = context.WithCancel(context.Background())
	w.Follower = waitqueue.NewFollower(context.Background(), waitqueue.Source{
		Open:    w.open,
		Opened:  w.report,
		Backoff: leastBackoff,
		Go: func(run func()) bool {
			w.wg.Go(run)
			return true
		},
	}, settings)
	w.usable = w.Usable
	return w
}

// close ends all watches and waits for the goroutine. The end of ctx interrupts the
// closing of the cursor on the server.
func (w *watcher) close(ctx context.Context) {
	defer w.cancelClose()
	defer context.AfterFunc(ctx, w.cancelClose)()
	w.Shut()
	w.wg.Wait()
}

// errCursorEnded: the server ended the cursor because the collection was dropped or renamed.
var errCursorEnded = errors.New("the server ended the cursor")

// open opens the cursor, unless it would occupy the last connection.
func (w *watcher) open(ctx context.Context) (waitqueue.Events, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	free := func() {}
	if w.connections != nil {
		var err error
		if free, err = w.connections.forCursor(ctx); err != nil {
			return nil, err
		}
	}
	cursor, err := w.source.open(ctx)
	if err != nil {
		free()
		return nil, err
	}
	return cursorEvents{cursor, w, free}, nil
}

// cursorEvents are the hints of an open cursor.
type cursorEvents struct {
	eventCursor
	watcher *watcher
	free    func() // frees its connection
}

// Next implements [waitqueue.Events].
func (c cursorEvents) Next(ctx context.Context) error {
	w := c.watcher
	ctx, cancel := context.WithTimeout(ctx, w.source.await+w.timeout)
	defer cancel()
	if !c.TryNext(ctx) {
		return c.Err()
	}
	if key, after, ok := c.wakes(); ok {
		w.Event(key.Name, key.Waiter, after)
	}
	return nil
}

// Close implements [waitqueue.Events]. It has a time limit of its own, since the context of the
// events may have ended.
func (c cursorEvents) Close() {
	ctx, cancel := context.WithTimeout(c.watcher.closeCtx, time.Second)
	defer cancel()
	defer c.free()
	_ = c.eventCursor.Close(ctx) // a cursor that cannot be closed now times out on the server
}

// report logs once that the cursor cannot be opened, and once that it is open again. A cursor
// that fails is usually open again at once.
func (w *watcher) report(err error) {
	if err == nil {
		if w.warned {
			w.logger.Info("holdfast: hints can be read again", "namespace", w.namespace)
		}
		w.warned = false
		return
	}
	level := slog.LevelDebug
	if !w.warned {
		level = slog.LevelWarn
	}
	w.warned = true
	w.logger.Log(context.Background(), level, "holdfast: no hints, waiters poll for released locks", "namespace", w.namespace,
		"error", sayOnce(err))
}

// leastBackoff returns how long to wait at least after a failure.
func leastBackoff(err error) time.Duration {
	switch {
	case isPermanent(err):
		return retryPermanent
	case errors.Is(err, errFewConnections):
		return waitqueue.LongestRetry
	}
	return 0
}
