package castest

import (
	"context"
	"errors"
	"fmt"
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
			if err := f.wait(errNoEffect); err != nil {
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
		if err = f.wait(errNoEffect); err == nil {
			err = w.write(ctx, key)
		}
		if err == nil {
			err = f.wait(errors.New("a write just after the first report was not reported: Watch said too early that it was in effect"))
		}
		err = errors.Join(err, f.stop())
	}
	return err
}

func survivesCut(ctx context.Context, w Watched) error {
	const key = "castest-cut"
	f := w.follow(ctx, key)
	err := f.wait(errNoEffect)
	for i := 0; i < 3 && err == nil; i++ {
		w.Cut()
		for range 2 { // the first report may be that of a Watch that begins anew
			f.drain()
			if err = w.write(ctx, key); err == nil {
				err = f.wait(errors.New("a write after the connection was cut was not reported, and Watch did not begin anew"))
			}
			if err != nil {
				break
			}
		}
	}
	return errors.Join(err, f.stop())
}

// following is a goroutine that calls Watch as a Locker does: again after an error.
type following struct {
	reports chan struct{}
	done    chan struct{}
	cancel  context.CancelFunc
	limit   time.Duration
}

func (w Watched) follow(ctx context.Context, key string) *following {
	f := &following{reports: make(chan struct{}, 100), done: make(chan struct{}), limit: w.Limit}
	ctx, f.cancel = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			_ = w.Watch(ctx, key, func(cas.Value) {
				select {
				case f.reports <- struct{}{}:
				default: // there are enough of them
				}
			})
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return f
}

// wait waits for a report.
func (f *following) wait(otherwise error) error {
	select {
	case <-f.reports:
		return nil
	case <-time.After(f.limit):
		return otherwise
	}
}

func (f *following) drain() {
	for len(f.reports) > 0 {
		<-f.reports
	}
}

// stop ends the context of Watch.
func (f *following) stop() error {
	f.cancel()
	select {
	case <-f.done:
		return nil
	case <-time.After(watchEnds + watchBusy):
		return fmt.Errorf("the Watch has not returned %v after its context had ended, and Close waits for it: end the client library's read, "+
			"for example by closing its connection with context.AfterFunc", watchEnds+watchBusy)
	}
}

// write writes the value of a key, again if the connection fails.
func (w Watched) write(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	for {
		v, err := w.Store.Get(ctx, key)
		if err == nil {
			_, err = w.Store.Put(ctx, key, []byte(time.Now().String()), v.Version)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("writing a value: %w", err)
		}
	}
}
