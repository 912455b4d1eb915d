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
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// streamAwait is how long the server holds a request for events. It is the server's
	// default, and shorter than a renewal's time limit: with maxPoolSize=1 the stream occupies
	// the only connection.
	streamAwait = time.Second
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

// watcher is the [driver.Watcher] of a Locker: one change stream for all watched names, open
// while there are watches. Waiters poll as well, so it only makes them faster.
type watcher struct {
	coll        *mongo.Collection
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
	open      bool      // whether the stream is open
	closed    bool
}

// watch is one waiter's.
type watch struct {
	wake    func()
	stopped atomic.Bool
}

// wakeWatches must be called without the watcher's mutex, since a waiter may stop its watch.
func wakeWatches(watches []*watch) {
	for _, one := range watches {
		if !one.stopped.Load() {
			one.wake()
		}
	}
}

// newWatcher needs a collection with read concern "majority" and read preference primary.
func newWatcher(coll *mongo.Collection, logger *slog.Logger) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	last, cut := context.WithCancel(context.Background())
	return &watcher{
		coll: coll, logger: logger, ctx: ctx, cancel: cancel, closeCtx: last, cancelClose: cut, timeout: streamTimeout, linger: streamLinger,
		waiters: map[string]map[*watch]struct{}{},
	}
}

// Watch implements [driver.Watcher].
func (w *watcher) Watch(name string, wake func()) (stop func()) {
	one := &watch{wake: wake}
	if w.add(name, one) {
		wake()
	}
	return func() { w.remove(name, one) }
}

// add reports whether the stream is open already.
func (w *watcher) add(name string, one *watch) (open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.waiters[name] == nil {
		w.waiters[name] = map[*watch]struct{}{}
	}
	w.waiters[name][one] = struct{}{}
	if !w.running {
		w.running = true
		w.wg.Go(w.run)
	}
	return w.open
}

func (w *watcher) remove(name string, one *watch) {
	one.stopped.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.waiters[name][one]; !there {
		return
	}
	delete(w.waiters[name], one)
	if len(w.waiters[name]) == 0 {
		delete(w.waiters, name)
	}
	if len(w.waiters) == 0 {
		w.idleSince = time.Now()
	}
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
func (w *watcher) wake(name string) { wakeWatches(w.watchesOf(name)) }

func (w *watcher) watchesOf(name string) []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.waiters[name]))
}

// wakeAll wakes every waiter, after a time in which events may have been missed.
func (w *watcher) wakeAll() { wakeWatches(w.allWatches()) }

func (w *watcher) allWatches() (all []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watches := range w.waiters {
		all = slices.AppendSeq(all, maps.Keys(watches))
	}
	return all
}

// setOpen records whether the stream is open.
func (w *watcher) setOpen(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = open
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
var errStreamEnded = errors.New("the change stream was invalidated")

// readStream opens the stream and dispatches its events until it fails or is not needed any
// more. lasted is how long it was open.
func (w *watcher) readStream() (lasted time.Duration, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	stream, err := w.coll.Watch(ctx, releasePipeline(), options.ChangeStream().SetMaxAwaitTime(streamAwait))
	cancel()
	if w.ctx.Err() == nil {
		w.report(err)
	}
	if err != nil {
		return 0, err
	}
	// The goroutine that reads the stream closes it: closing it during Next would panic.
	defer w.closeStream(stream)
	opened := time.Now()
	w.setOpen(true)
	defer w.setOpen(false)
	w.wakeAll()
	for cursor := stream.ID(); !w.idle(); {
		event, err := w.next(stream)
		if id := stream.ID(); id != cursor {
			cursor = id // the Go driver resumed the stream on another cursor
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
func (w *watcher) next(stream *mongo.ChangeStream) (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	defer cancel()
	if stream.TryNext(ctx) {
		return stream.Current, nil
	}
	return nil, stream.Err()
}

// dispatch wakes the waiters of an event's lock. Events of the whole collection have no name.
// They end the stream, and reopening it wakes every waiter.
func (w *watcher) dispatch(event bson.Raw) {
	if name, ok := event.Lookup("documentKey", "_id").StringValueOK(); ok {
		w.wake(name)
	}
}

// closeStream closes the server's cursor. It has its own time limit, since the stream's
// context may have ended.
func (w *watcher) closeStream(stream *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(w.closeCtx, time.Second)
	defer cancel()
	_ = stream.Close(ctx) // a cursor that cannot be closed now times out on the server
}

// report logs once that the stream cannot be opened, and once that it is open again. A stream
// that fails is usually open again at once.
func (w *watcher) report(err error) {
	if err == nil {
		if w.warned {
			w.logger.Info("holdfast: the change stream is open again", "namespace", w.namespace())
		}
		w.warned = false
		return
	}
	level := slog.LevelDebug
	if !w.warned {
		level = slog.LevelWarn
	}
	w.warned = true
	w.logger.Log(w.ctx, level, "holdfast: no change stream, waiters poll for released locks",
		"namespace", w.namespace(), "error", err)
}

func (w *watcher) namespace() string { return w.coll.Database().Name() + "." + w.coll.Name() }

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

// releasePipeline selects the events after which a lock may be free: the kid was removed, the
// lock was broken, or the record or the whole collection was removed. The server filters out
// grants and renewals. A release is an update event or, if that is shorter to log, a
// replacement. Only the record's name is transferred.
func releasePipeline() mongo.Pipeline {
	const update = "updateDescription."
	return mongo.Pipeline{
		docOf("$match", or(
			docOf("operationType", docOf("$nin", list{"insert", "update", "replace"})),
			docOf(update+"removedFields", fieldKid),
			docOf(update+"updatedFields."+fieldBroken, true),
			doc{field("operationType", "replace"), field("fullDocument."+fieldKid, docOf("$exists", false))},
		)),
		docOf("$project", docOf("documentKey._id", 1)),
	}
}
