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
	// streamAwait is how long the server keeps a request for events waiting. It
	// is the server's own default, and shorter than a renewal's time limit, since
	// with maxPoolSize=1 the stream keeps the only connection from the others.
	streamAwait = time.Second
	// streamTimeout bounds each request of the stream, so that a frozen server
	// does not end it.
	streamTimeout = 10 * time.Second
	// streamLinger is how long the stream outlives its last watch: where a lock
	// goes from hand to hand within a process, the next waiter finds it open.
	streamLinger = 5 * time.Second
	// streamSteady is how long a stream must last for its end to count as the
	// first failure, not as one more.
	streamSteady = 10 * time.Second

	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
	// retryRefused is the pause after a refusal that people end, not time: they
	// grant a privilege, or make a standalone server a replica set.
	retryRefused = 10 * time.Minute
)

// watcher is the [driver.Watcher] of a Locker: one change stream for all
// watched names. It runs while there are watches; waiters poll as well, so
// nothing but speed depends on it.
type watcher struct {
	coll   *mongo.Collection
	logger *slog.Logger
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	last   context.Context // of the farewell to the server; ends with that of close
	cut    context.CancelFunc
	wg     sync.WaitGroup // the goroutine of run
	warned bool           // of the failure that lasts; only run touches it

	timeout, linger time.Duration // streamTimeout and streamLinger, less in tests

	mu        sync.Mutex // guards what follows; never held across I/O
	waiters   map[string]map[*watch]struct{}
	idleSince time.Time // when the last watch ended, if there is none
	running   bool      // the goroutine of run is there
	live      bool      // the stream is in effect
	closed    bool
}

// watch is one waiter.
type watch struct {
	call    func()
	stopped atomic.Bool
}

// wakeEach is called without the watcher's mutex, since a waker may stop its watch.
func wakeEach(watches []*watch) {
	for _, one := range watches {
		if !one.stopped.Load() {
			one.call()
		}
	}
}

// newWatcher watches through a collection with read concern majority and read
// preference primary.
func newWatcher(coll *mongo.Collection, logger *slog.Logger) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	last, cut := context.WithCancel(context.Background())
	return &watcher{
		coll: coll, logger: logger, ctx: ctx, cancel: cancel, last: last, cut: cut, timeout: streamTimeout, linger: streamLinger,
		waiters: map[string]map[*watch]struct{}{},
	}
}

// Watch implements [driver.Watcher].
func (w *watcher) Watch(name string, wake func()) (stop func()) {
	one := &watch{call: wake}
	if w.add(name, one) {
		wake()
	}
	return func() { w.forget(name, one) }
}

// add reports whether the watch is in effect already.
func (w *watcher) add(name string, one *watch) (live bool) {
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
	return w.live
}

func (w *watcher) forget(name string, one *watch) {
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

// close ends all watches and returns when the stream is gone. The end of ctx cuts the
// farewell to the server off.
func (w *watcher) close(ctx context.Context) {
	defer w.cut()
	defer context.AfterFunc(ctx, w.cut)()
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

// wake wakes who watches name.
func (w *watcher) wake(name string) { wakeEach(w.watching(name)) }

func (w *watcher) watching(name string) []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.waiters[name]))
}

// wakeAll wakes everybody: what happened in a gap is not known.
func (w *watcher) wakeAll() { wakeEach(w.everybody()) }

func (w *watcher) everybody() (all []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watches := range w.waiters {
		all = slices.AppendSeq(all, maps.Keys(watches))
	}
	return all
}

// setLive notes whether the stream is in effect.
func (w *watcher) setLive(live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = live
}

// idle reports whether the stream has had no watch for the time it lingers.
func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isIdle()
}

func (w *watcher) isIdle() bool {
	return len(w.waiters) == 0 && (w.closed || time.Since(w.idleSince) > w.linger)
}

// wanted reports whether run is to go on. Its no is final, so that the next
// watch starts another goroutine.
func (w *watcher) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !w.isIdle()
	return w.running
}

// run keeps the stream open while it is wanted. After a failure it waits, even
// if nobody watches any more, so that coming and going does not undo the pause.
func (w *watcher) run() {
	for failures := 0; w.wanted(); {
		lasted, err := w.follow()
		if err == nil || w.ctx.Err() != nil {
			continue // wanted has the last word
		}
		if lasted >= streamSteady {
			failures = 0
		}
		select {
		case <-time.After(retryPause(err, failures)):
			failures++
		case <-w.ctx.Done():
		}
	}
}

// errStreamEnded says that the server ended the stream: the collection was
// dropped or renamed.
var errStreamEnded = errors.New("the change stream was invalidated")

// follow opens the stream and hands its events out until it breaks, with an
// error, or is not wanted any more. lasted is how long it was open.
func (w *watcher) follow() (lasted time.Duration, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	stream, err := w.coll.Watch(ctx, releasesOnly(), options.ChangeStream().SetMaxAwaitTime(streamAwait))
	cancel()
	if w.ctx.Err() == nil {
		w.report(err)
	}
	if err != nil {
		return 0, err
	}
	// The stream is closed by the goroutine that reads it: closing it while Next
	// is under way would panic.
	defer w.closeStream(stream)
	opened := time.Now()
	w.setLive(true)
	defer w.setLive(false)
	w.wakeAll()
	for cursor := stream.ID(); !w.idle(); {
		event, err := w.next(stream)
		if id := stream.ID(); id != cursor {
			cursor = id // the driver resumed on another cursor
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

// dispatch wakes the waiters of an event's lock. Events of the whole collection
// name none: they end the stream, and opening it again wakes everybody.
func (w *watcher) dispatch(event bson.Raw) {
	if name, ok := event.Lookup("documentKey", "_id").StringValueOK(); ok {
		w.wake(name)
	}
}

// closeStream gives the server's cursor back. It has a time limit of its own
// since the context of the stream may have ended.
func (w *watcher) closeStream(stream *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(w.last, time.Second)
	defer cancel()
	_ = stream.Close(ctx) // a cursor that cannot be closed now times out on the server
}

// report logs once that the stream cannot be opened, and once that it is again.
// One that broke is usually open again in a moment.
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
	w.logger.Log(w.ctx, level, "holdfast: no change stream, so waiters poll for released locks",
		"namespace", w.namespace(), "error", err)
}

func (w *watcher) namespace() string { return w.coll.Database().Name() + "." + w.coll.Name() }

// retryPause is how long to wait after that many failures before this one. It
// is jittered, so that the clients of a recovering server do not come together.
func retryPause(err error, failures int) time.Duration {
	pause := retryMost
	if refused(err) {
		pause = retryRefused
	} else if failures < 16 {
		pause = min(retryFirst<<failures, retryMost)
	}
	return pause/2 + rand.N(pause/2)
}

// refused reports whether a retry will hardly help.
func refused(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	for _, code := range []int{
		13,    // Unauthorized
		59,    // CommandNotFound
		115,   // CommandNotSupported
		40324, // unrecognized pipeline stage
		40573, // $changeStream is only supported on replica sets
	} {
		if server.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// releasesOnly lets an event through if a lock may have become free: its kid is
// gone, it was broken, its record or the whole collection was removed. Takings
// and renewals stay at the server. A release is an update or, where the server
// found that shorter to log, a replacement. Of the record only the name travels.
func releasesOnly() mongo.Pipeline {
	const update = "updateDescription."
	return mongo.Pipeline{
		is("$match", or(
			is("operationType", is("$nin", list{"insert", "update", "replace"})),
			is(update+"removedFields", fieldKid),
			is(update+"updatedFields."+fieldBroken, true),
			doc{field("operationType", "replace"), field("fullDocument."+fieldKid, is("$exists", false))},
		)),
		is("$project", is("documentKey._id", 1)),
	}
}
