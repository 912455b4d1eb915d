package mongo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// streamTimeout limits each request of the stream, so that a frozen server cannot block
	// it.
	streamTimeout = 10 * time.Second
	// streamLinger is how long the stream stays open after its last watch ends. Where waiters
	// of one process follow each other, the next one finds it open.
	streamLinger = 5 * time.Second
	// streamStable is how long a stream must last for the backoff to begin again after its
	// failure.
	streamStable = 10 * time.Second

	firstRetry   = 100 * time.Millisecond
	longestRetry = 30 * time.Second
	// retryPermanent is the backoff after a failure that a person must resolve, by granting a
	// privilege or making a standalone server a replica set.
	retryPermanent = 10 * time.Minute
)

// source is where a watcher learns which locks may be free.
type source struct {
	what string // for the log
	open func(ctx context.Context) (eventCursor, error)
	// read returns the lock of an event, and how long its waiter must let others go first. ok is
	// false for an event that is of no lock.
	read func(event bson.Raw) (name string, turn time.Duration, ok bool)
}

// eventCursor is a cursor whose requests wait on the server for events.
type eventCursor interface {
	ID() int64
	// TryNext returns false if no event has come while the server held the request, or after an
	// error. It fails if the server does not answer for longer than the limit.
	TryNext(ctx context.Context, limit time.Duration) bool
	Err() error
	Close(ctx context.Context) error
	event() bson.Raw
}

// watcher wakes the waiters of a Locker: it reads one cursor for all watched names, open
// while there are watches. Waiters poll as well, so it only makes them faster.
type watcher struct {
	source      source
	namespace   string
	logger      *slog.Logger
	ctx         context.Context // ends with close
	cancel      context.CancelFunc
	closeCtx    context.Context // for closing the cursor on the server; ends with close's context
	cancelClose context.CancelFunc
	wg          sync.WaitGroup // waits for the goroutine of run
	warned      bool           // whether the present failure was logged; used by run only

	timeout, linger time.Duration // streamTimeout and streamLinger, shorter in tests

	mu        sync.Mutex // guards the fields below; never held across I/O
	waiters   map[string]map[*watch]struct{}
	idleSince time.Time // when the last watch ended
	running   bool      // whether the goroutine of run exists
	openSince time.Time // when the cursor was opened; zero if it is not open
	failed    bool      // the latest attempt to open the cursor failed
	closed    bool
}

// watch is one waiter's.
type watch struct {
	wake    func(turn time.Duration)
	stopped atomic.Bool
}

// wakeWatches must be called without the watcher's mutex, since a waiter may stop its watch.
func wakeWatches(watches []*watch, turn time.Duration) {
	for _, one := range watches {
		if !one.stopped.Load() {
			one.wake(turn)
		}
	}
}

func newWatcher(from source, namespace string, logger *slog.Logger) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	last, cut := context.WithCancel(context.Background())
	return &watcher{
		source: from, namespace: namespace, logger: logger, ctx: ctx, cancel: cancel, closeCtx: last, cancelClose: cut, timeout: streamTimeout, linger: streamLinger,
		waiters: map[string]map[*watch]struct{}{},
	}
}

// Watch implements [driver.Watcher].
func (w *watcher) Watch(name string, wake func()) (stop func()) {
	one := &watch{wake: func(time.Duration) { wake() }}
	if open := w.add(name, one); !open.IsZero() {
		wake()
	}
	return func() { w.remove(name, one) }
}

// add returns since when the cursor is open, or the zero time.
func (w *watcher) add(name string, one *watch) (openSince time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return time.Time{}
	}
	if w.waiters[name] == nil {
		w.waiters[name] = map[*watch]struct{}{}
	}
	w.waiters[name][one] = struct{}{}
	if !w.running {
		w.running = true
		w.wg.Go(w.run)
	}
	return w.openSince
}

// remove ends a watch. last is true if it was the last one of its name.
func (w *watcher) remove(name string, one *watch) (last bool) {
	one.stopped.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.waiters[name][one]; !there {
		return false
	}
	delete(w.waiters[name], one)
	if last = len(w.waiters[name]) == 0; last {
		delete(w.waiters, name)
	}
	if len(w.waiters) == 0 {
		w.idleSince = time.Now()
	}
	return last
}

// watched reports whether a name has a watch.
func (w *watcher) watched(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters[name]) > 0
}

// close ends all watches and waits for the stream's goroutine. The end of ctx interrupts the
// closing of the cursor on the server.
func (w *watcher) close(ctx context.Context) {
	defer w.cancelClose()
	defer context.AfterFunc(ctx, w.cancelClose)()
	w.mu.Lock()
	w.closed = true
	for _, watches := range w.waiters {
		for one := range watches {
			one.stopped.Store(true)
		}
	}
	clear(w.waiters)
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}

// wake wakes the waiters of a name.
func (w *watcher) wake(name string, turn time.Duration) { wakeWatches(w.watchesOf(name), turn) }

func (w *watcher) watchesOf(name string) []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.waiters[name]))
}

// wakeAll wakes every waiter, after a time in which events may have been missed.
func (w *watcher) wakeAll() { wakeWatches(w.allWatches(), driver.MaybeMissed) }

func (w *watcher) allWatches() (all []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watches := range w.waiters {
		all = slices.AppendSeq(all, maps.Keys(watches))
	}
	return all
}

// setOpen records since when the cursor is open, or with the zero time that it is not.
func (w *watcher) setOpen(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.openSince = since
}

// setFailed records whether the cursor could be opened.
func (w *watcher) setFailed(failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = failed
}

// usable reports whether the cursor is open, or may well be opened.
func (w *watcher) usable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.failed
}

// idle reports whether the stream has had no watch for the linger time.
func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isIdle()
}

func (w *watcher) isIdle() bool {
	return len(w.waiters) == 0 && (w.closed || time.Since(w.idleSince) > w.linger)
}

// keepRunning reports whether run continues. After false, the next watch starts another
// goroutine.
func (w *watcher) keepRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !w.isIdle()
	w.failed = w.failed && w.running // what the next goroutine can open is unknown
	return w.running
}

// run keeps the stream open while there are watches. After a failure it always waits for the
// backoff, even without watches, so that frequent watches do not bypass it.
func (w *watcher) run() {
	for failures := 0; w.keepRunning(); {
		lasted, err := w.readStream()
		if err == nil || w.ctx.Err() != nil {
			continue // keepRunning decides
		}
		if lasted >= streamStable {
			failures = 0
		}
		select {
		case <-time.After(retryBackoff(err, failures)):
			failures++
		case <-w.ctx.Done():
		}
	}
}

// errStreamEnded: the server ended the stream because the collection was dropped or renamed.
var errStreamEnded = errors.New("the server ended the cursor")

// readStream opens the stream and dispatches its events until it fails or is not needed any
// more. lasted is how long it was open.
func (w *watcher) readStream() (lasted time.Duration, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	stream, err := w.source.open(ctx)
	cancel()
	if w.ctx.Err() == nil {
		w.report(err)
		w.setFailed(err != nil)
	}
	if err != nil {
		return 0, err
	}
	// The goroutine that reads the stream closes it: closing it during Next would panic.
	defer w.closeStream(stream)
	opened := time.Now()
	w.setOpen(opened)
	defer w.setOpen(time.Time{})
	w.wakeAll()
	for cursor := stream.ID(); !w.idle(); {
		event, err := w.next(stream)
		if id := stream.ID(); id != cursor {
			cursor = id // the Go driver resumed a stream on another cursor
			w.setOpen(time.Now())
			w.wakeAll()
		}
		switch {
		case err != nil:
			return time.Since(opened), err
		case event != nil:
			w.dispatch(event)
		case cursor == 0:
			return time.Since(opened), errStreamEnded
		}
	}
	return time.Since(opened), nil
}

// next returns the next event, or nil if none came for a while.
func (w *watcher) next(stream eventCursor) (bson.Raw, error) {
	if stream.TryNext(w.ctx, w.timeout) {
		return stream.event(), nil
	}
	return nil, stream.Err()
}

// dispatch wakes the waiters of an event's lock.
func (w *watcher) dispatch(event bson.Raw) {
	if name, turn, ok := w.source.read(event); ok {
		w.wake(name, turn)
	}
}

// closeStream closes the server's cursor. It has its own time limit, since the stream's
// context may have ended.
func (w *watcher) closeStream(stream eventCursor) {
	ctx, cancel := context.WithTimeout(w.closeCtx, time.Second)
	defer cancel()
	_ = stream.Close(ctx) // a cursor that cannot be closed now times out on the server
}

// report logs once that the stream cannot be opened, and once that it is open again. A stream
// that fails is usually open again at once.
func (w *watcher) report(err error) {
	if err == nil {
		if w.warned {
			w.logger.Info("holdfast: "+w.source.what+" can be read again", "namespace", w.namespace)
		}
		w.warned = false
		return
	}
	level := slog.LevelDebug
	if !w.warned {
		level = slog.LevelWarn
	}
	w.warned = true
	w.logger.Log(w.ctx, level, "holdfast: no "+w.source.what+", waiters poll for released locks",
		"namespace", w.namespace, "error", err)
}

// retryBackoff returns how long to wait after a failure with that many failures before it. It
// is jittered, so that the clients of a recovering server do not reconnect together.
func retryBackoff(err error, failures int) time.Duration {
	wait := longestRetry
	if isPermanent(err) {
		wait = retryPermanent
	} else if failures < 16 {
		wait = min(firstRetry<<failures, longestRetry)
	}
	return wait/2 + rand.N(wait/2)
}

// isPermanent reports whether a retry is unlikely to help.
func isPermanent(err error) bool {
	return hasCode(err, codeUnauthorized, codeCommandNotFound, codeCommandNotSupported, codeUnrecognizedStage, codeOnlyOnReplicaSets)
}
