package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/internal/worker"
)

const (
	// releaseLimit is how many releases may be under way at once during Shutdown, and for LeaseManagers
	// altogether. Thousands would wait for connections, and their time limits would end there.
	releaseLimit = 64
	// batchLimit is how many batches of releases of a class may be under way at once.
	batchLimit = 4
	// batchSize keeps a batch short enough for its time limit.
	batchSize = 500
	// BatchedReleases is how many releases fill all batches.
	BatchedReleases = batchLimit * batchSize
)

// releases sends releases. Where the backend has a BatchReleaser, many that are due together share
// calls: each waits until a call may begin, and the first one to begin takes along all that wait then.
// One that is alone is sent by Release.
//
// Releases whose time limits are about as long form a class, with a limit of its own: a lease of a
// second does not wait for calls for leases of an hour.
type releases struct {
	locker driver.Locker
	batch  driver.BatchReleaser // or nil
	base   context.Context
	calls  worker.Group // of limited and shared

	mu      sync.Mutex // never held during a call
	arrived uint64
	limited *dispatch.Calls[*waitingRelease] // one by one
	shared  *dispatch.Calls[*waitingRelease] // in batches; nil without a BatchReleaser
}

// waitingRelease is a release that waits for a call.
type waitingRelease struct {
	lease driver.Lease
	limit time.Duration
	alone func() error // sends it by itself
	order uint64       // of arrival
	index int          // among those that wait; -1 outside
	once  sync.Once
	err   error         // readable once done is closed
	done  chan struct{} // the call has ended, or was given up on
}

// finish gives a release its result, and reports whether it had none yet.
func (w *waitingRelease) finish(err error) (first bool) {
	w.once.Do(func() {
		w.err, first = err, true
		close(w.done)
	})
	return first
}

// newReleases returns what sends the releases of a Client. After the end of base nothing waits any more.
func newReleases(base context.Context, locker driver.Locker) *releases {
	r := &releases{locker: locker, batch: locker.Capabilities().BatchReleaser, base: base}
	rules := dispatch.Rules[*waitingRelease]{
		Mu: &r.mu, Workers: &r.calls, Limit: releaseLimit, Begin: r.begin,
		Before: func(x, y *waitingRelease) bool { return x.order < y.order },
		Moved:  func(w *waitingRelease, index int) { w.index = index },
	}
	r.limited = dispatch.NewCalls(rules)
	if r.batch != nil {
		rules.Limit, rules.Batch, rules.Weight = batchLimit, batchSize, 1
		rules.Class = func(w *waitingRelease) int { return timing.Class(w.limit) }
		r.shared = dispatch.NewCalls(rules)
	}
	return r
}

// send sends one release at once, with a time limit of its own.
func (r *releases) send(ctx context.Context, l driver.Lease, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Promise 6: the lease has the ID of this acquisition, so no other holder's lock is released.
	return r.locker.Release(ctx, l)
}

// sendLimited sends one release when few enough others are under way. Unless it goes alone it may share a call with others. If
// that call fails, the outcome of each is unknown.
func (r *releases) sendLimited(ctx context.Context, l driver.Lease, limit time.Duration, alone bool) error {
	w := r.prepare(ctx, l, limit)
	return r.sendAll([]*waitingRelease{w}, alone)(w)
}

// sendAll is sendLimited for several releases of one caller: they share a call if one may begin, whoever else waits. It
// returns the function that waits for the result of one.
func (r *releases) sendAll(ws []*waitingRelease, alone bool) (await func(*waitingRelease) error) {
	calls := r.shared
	if calls == nil || alone {
		calls = r.limited
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ws {
		r.arrived++
		w.order = r.arrived
		calls.Add(w, false)
	}
	calls.Start()
	return func(w *waitingRelease) error { return r.await(calls, w) }
}

// prepare makes a release that is not sent yet.
func (r *releases) prepare(ctx context.Context, l driver.Lease, limit time.Duration) *waitingRelease {
	return &waitingRelease{lease: l, limit: limit, alone: func() error { return r.send(ctx, l, limit) }, done: make(chan struct{})}
}

// await waits until a release was sent.
func (r *releases) await(calls *dispatch.Calls[*waitingRelease], w *waitingRelease) error {
	select {
	case <-w.done:
		return w.result()
	case <-r.base.Done(): // Shutdown has given up, and closes the Locker
	}
	r.mu.Lock()
	waits := w.index >= 0
	if waits {
		calls.Remove(w, false, w.index)
	}
	r.mu.Unlock()
	if waits {
		return w.alone()
	}
	<-w.done
	return w.result()
}

// result returns the result of a release that has ended. The driver's panic goes on in the goroutine that wants the
// release, as if that had sent it by itself.
func (w *waitingRelease) result() error {
	var p *panicError
	if errors.As(w.err, &p) {
		panic(p)
	}
	return w.err
}

// panicError is a panic of the driver in a call that was made for others.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string {
	return fmt.Sprintf("holdfast: a release panicked: %v\n\n%s", p.value, p.stack)
}

var (
	errReleaseResults = errors.New("ReleaseBatch did not return one result for each lease")
	errReleaseEnded   = errors.New("the goroutine of the call has ended") // by runtime.Goexit
)

// begin prepares a call, within the shortest of the releases' time limits. Each has its result afterwards, at the
// latest when the call should have returned.
func (r *releases) begin(all []*waitingRelease) dispatch.Call {
	limit := all[0].limit
	for _, w := range all {
		limit = min(limit, w.limit)
	}
	finish := func(errs []error, missing error) (taken bool) {
		for i, w := range all {
			err := missing
			if len(errs) == len(all) {
				err = errs[i]
			}
			first := w.finish(err)
			taken = taken || first
		}
		return taken
	}
	send := func() {
		defer func() {
			if v := recover(); v != nil {
				if !finish(nil, &panicError{v, debug.Stack()}) {
					panic(v) // The call was given up as hung: nobody waits any more who would see it.
				}
			}
			finish(nil, errReleaseEnded)
		}()
		finish(r.sendBatch(all, limit), errReleaseResults)
	}
	return dispatch.Call{Do: send, Patience: timing.Patience(limit), Hung: func() { finish(nil, timing.ErrHung) }}
}

func (r *releases) sendBatch(all []*waitingRelease, limit time.Duration) []error {
	if len(all) == 1 {
		return []error{all[0].alone()}
	}
	leases := make([]driver.Lease, len(all))
	for i, w := range all {
		leases[i] = w.lease
	}
	ctx, cancel := context.WithTimeout(r.base, limit)
	defer cancel()
	// Promise 6: each lease has the ID of its own acquisition.
	return r.batch.ReleaseBatch(ctx, leases)
}
