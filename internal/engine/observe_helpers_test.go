package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// inspected is a Locker that notes the reads of single records, and lets a test replace them.
type inspected struct {
	holdfast.Locker
	watch   func(name string, wake func()) (stop func()) // nil: no Watcher
	inject  atomic.Pointer[func(context.Context) error]  // an error of it is the read's
	reads   *times
	watches atomic.Int64 // open now
}

func newInspected(l holdfast.Locker) *inspected { return &inspected{Locker: l, reads: newTimes()} }

// withWatcher adds the backend's own Watcher if the test asks for one.
func (l *inspected) withWatcher(watcher bool) *inspected {
	if watcher {
		l.watch = func(name string, wake func()) (stop func()) {
			return l.Locker.Capabilities().Waker.Wake(name, "", func(driver.Wakeup) { wake() })
		}
	}
	return l
}

func (l *inspected) fail(inject func(context.Context) error) { l.inject.Store(&inject) }

func (l *inspected) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	l.reads.note()
	if inject := l.inject.Load(); inject != nil {
		if err := (*inject)(ctx); err != nil {
			return holdfast.Record{}, err
		}
	}
	return l.Locker.Inspect(ctx, name)
}

func (l *inspected) Capabilities() driver.Capabilities {
	if l.watch == nil {
		return driver.Capabilities{}
	}
	return driver.Capabilities{Waker: l}
}

func (l *inspected) Wake(name string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	l.watches.Add(1)
	end := l.watch(name, func() { wake(driver.Wakeup{}) })
	return func() { end(); l.watches.Add(-1) }
}

// yield is one element of the sequence that Observe returns.
type yield struct {
	record holdfast.Record
	err    error
	after  time.Duration // since the beginning
}

// observation collects what Observe yields.
type observation struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the sequence has ended

	mu    sync.Mutex
	new   []yield
	start time.Time
}

func observe(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.Option) *observation {
	ctx, cancel := context.WithCancel(t.Context())
	o := &observation{cancel: cancel, done: make(chan struct{}), start: time.Now()}
	t.Cleanup(func() { cancel(); <-o.done })
	go func() {
		defer close(o.done)
		for r, err := range c.Observe(ctx, name, opts...) {
			o.mu.Lock()
			o.new = append(o.new, yield{r, err, time.Since(o.start)})
			o.mu.Unlock()
		}
	}()
	return o
}

// next returns what was yielded since the last call.
func (o *observation) next() []yield {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.new
	o.new = nil
	return list
}

// ended checks that the sequence has ended, without another read from then on.
func (o *observation) ended(t *testing.T, l *inspected) {
	t.Helper()
	synctest.Wait()
	select {
	case <-o.done:
	default:
		t.Error("the sequence has not ended")
		return
	}
	before := len(l.reads.all())
	time.Sleep(time.Minute)
	if n := len(l.reads.all()) - before; n != 0 || l.watches.Load() != 0 {
		t.Errorf("%d reads and %d watches after the end", n, l.watches.Load())
	}
}

func withAndWithoutWatcher(t *testing.T, test func(t *testing.T, watcher bool)) {
	for name, watcher := range map[string]bool{"with a Watcher": true, "without a Watcher": false} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, watcher) }) })
	}
}
