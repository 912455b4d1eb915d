package castest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// Watched is a store whose Watch is tested.
type Watched struct {
	Store cas.Store
	// Watch is that of the [cas.Config].
	Watch func(ctx context.Context, key string, changed func(cas.Value)) error
	// Cut interrupts the connections of Watch, as [Proxy.Cut] does, or a restart of the server. Those of the Store may be
	// interrupted, too.
	Cut func()
	// Limit is how long a report may take. The default is 10 s.
	Limit time.Duration
}

const (
	// watchEnds is how soon a Watch returns after its context, and watchBusy what a busy machine may need beyond that.
	watchEnds, watchBusy = time.Second, 4 * time.Second
	// watchTries is how often a write follows the beginning of a watch at once.
	watchTries = 20
)

// RunWatch checks what the conformance suite cannot see of a Watch: it returns within a second of its context's end, and four more on a
// busy machine, although the client library may read on; it has come into effect when it says so; and a write while its connection is
// cut is reported, by a change or by a Watch that begins anew. Nothing else should use the store.
func RunWatch(t *testing.T, w Watched) {
	t.Helper()
	for _, c := range watchClauses {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(t.Context(), w.withDefaults()); err != nil {
				t.Error(err)
			}
		})
	}
}

var watchClauses = []struct {
	name  string
	check func(context.Context, Watched) error
}{
	{"ends with its context", endsWithContext},
	{"is in effect when it says so", isInEffect},
	{"survives a cut", survivesCut},
}

func (w Watched) withDefaults() Watched {
	if w.Limit == 0 {
		w.Limit = 10 * time.Second
	}
	return w
}

var errNoEffect = errors.New("the watch has not come into effect")

func endsWithContext(ctx context.Context, w Watched) error {
	for _, inEffect := range []bool{true, false} {
		f := w.follow(ctx, "castest-ends")
		if inEffect {
			if err := f.wait(anything, errNoEffect); err != nil {
				return errors.Join(err, f.stop())
			}
		}
		if err := f.stop(); err != nil {
			return err
		}
	}
	return nil
}

func isInEffect(ctx context.Context, w Watched) (err error) {
	for i := 0; i < watchTries && err == nil; i++ {
		key := fmt.Sprint("castest-effect-", i)
		f := w.follow(ctx, key)
		if err = f.wait(anything, errNoEffect); err == nil {
			err = w.writeFor(ctx, key, f, "a write just after the first report was not reported: Watch said too early that it was in effect")
		}
		err = errors.Join(err, f.stop())
	}
	return err
}

func survivesCut(ctx context.Context, w Watched) error {
	const key = "castest-cut"
	f := w.follow(ctx, key)
	err := f.wait(anything, errNoEffect)
	for i := 0; i < 3 && err == nil; i++ {
		w.Cut()
		for j := 0; j < 2 && err == nil; j++ { // the first write may be reported by a Watch that begins anew
			err = w.writeFor(ctx, key, f, "a write after the connection was cut was not reported, and Watch did not begin anew")
		}
	}
	return errors.Join(err, f.stop())
}

// following calls Watch as a Locker does: again after an error. While a write is under way and after it, it reads the key at each
// report without the value.
type following struct {
	writing atomic.Bool
	seen    chan string // what the key had at a report, or anything
	done    chan struct{}
	cancel  context.CancelFunc
	reading sync.WaitGroup
	limit   time.Duration
}

// many is more than what is reported of a key that is written a few times.
const many = 100

func (w Watched) follow(ctx context.Context, key string) *following {
	f := &following{seen: make(chan string, many), done: make(chan struct{}), limit: w.Limit}
	ctx, f.cancel = context.WithCancel(ctx)
	type report struct {
		value   cas.Value
		writing bool // else it is of something before
	}
	reports := make(chan report, many)
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			_ = w.Watch(ctx, key, func(v cas.Value) {
				select {
				case reports <- report{v, f.writing.Load()}:
				default: // there are enough of them
				}
			})
			pause(ctx, 100*time.Millisecond)
		}
	}()
	f.reading.Go(func() {
		for ctx.Err() == nil {
			select {
			case r := <-reports:
				seen := anything
				if r.writing {
					seen = w.read(ctx, key, r.value)
				}
				select {
				case f.seen <- seen:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}
	})
	return f
}

// read returns the value of a report. Without one it reads the key, again if the connection fails.
func (w Watched) read(ctx context.Context, key string, v cas.Value) string {
	for v.Version == "" {
		var err error
		if v, err = w.Store.Get(ctx, key); err == nil || ctx.Err() != nil {
			break
		}
		pause(ctx, 10*time.Millisecond)
	}
	return string(v.Data)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// anything stands for any value, or none.
const anything = ""

// wait waits for a report at which the key has what was written.
func (f *following) wait(written string, otherwise error) error {
	for over := time.After(f.limit); ; {
		select {
		case value := <-f.seen:
			if written == anything || value == written {
				return nil
			}
		case <-over:
			return otherwise
		}
	}
}

// stop ends the context of Watch.
func (f *following) stop() error {
	f.cancel()
	select {
	case <-f.done:
		f.reading.Wait()
		return nil
	case <-time.After(watchEnds + watchBusy):
		return fmt.Errorf("the Watch has not returned %v after its context had ended, and Close waits for it: end the client library's read, "+
			"for example by closing its connection with context.AfterFunc", watchEnds+watchBusy)
	}
}

// writeFor writes a new value, and waits until it is reported.
func (w Watched) writeFor(ctx context.Context, key string, f *following, otherwise string) error {
	f.writing.Store(false)
	written, err := w.write(ctx, key, f)
	if err != nil {
		return err
	}
	return f.wait(written, errors.New(otherwise))
}

// write writes a new value of a key, again if the connection fails, and returns it.
func (w Watched) write(ctx context.Context, key string, f *following) (written string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	for written = rand.Text(); ; pause(ctx, 10*time.Millisecond) {
		v, err := w.Store.Get(ctx, key)
		if err == nil {
			f.writing.Store(true)
			_, err = w.Store.Put(ctx, key, []byte(written), v.Version)
		}
		if err == nil {
			return written, nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("writing a value: %w", err)
		}
	}
}
