package batchread

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// reader is a BatchInspector that notes its calls.
type reader struct {
	mu     sync.Mutex
	calls  [][]string
	before func(ctx context.Context, n int) ([]driver.Record, []error) // n counts from 1; nil, nil: answer
}

func (r *reader) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	r.mu.Lock()
	r.calls = append(r.calls, names)
	n := len(r.calls)
	r.mu.Unlock()
	if r.before != nil {
		if records, errs := r.before(ctx, n); records != nil || errs != nil {
			return records, errs
		}
	}
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	for i, name := range names {
		if records[i].Name = name; name == "bad" {
			errs[i] = errors.New("bad record")
		}
	}
	return records, errs
}

// list returns the names of each call so far.
func (r *reader) list() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *reader) count() int { return len(r.list()) }

// seen collects what is delivered.
type seen struct {
	mu   sync.Mutex
	at   map[string]time.Time
	errs map[string]error
	n    int
}

func (s *seen) of(t *testing.T, name string) func(driver.Record, error) {
	return func(r driver.Record, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && r.Name != name {
			t.Errorf("%q was told of %q", name, r.Name)
		}
		if s.at == nil {
			s.at, s.errs = map[string]time.Time{}, map[string]error{}
		}
		s.at[name], s.errs[name] = time.Now(), err
		s.n++
	}
}

// err is what was delivered of a name, if an error.
func (s *seen) err(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errs[name]
}

// when returns when each name was delivered.
func (s *seen) when() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at)
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func active(o *Reader) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running
}

// pass lets time go by and everything settle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const lookLimit = 3 * time.Second

// lookTest runs fn in a bubble with a lookout that is closed at the end.
func lookTest(t *testing.T, r *reader, fn func(t *testing.T, o *Reader, shut func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		closing, shut := context.WithCancelCause(context.Background())
		o := New(closing, r, func() time.Duration { return time.Since(start) }, lookLimit)
		defer func() {
			shut(cause.ErrShutdown)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if !o.Close(ctx) {
				t.Error("the reader has not ended")
			}
		}()
		fn(t, o, func() { shut(cause.ErrShutdown) })
	})
}

func TestLooksTravelTogether(t *testing.T) {
	r, s := &reader{}, &seen{}
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		for i := range 2500 { // due from 10 s to 14 s
			name := fmt.Sprint("lock-", i)
			o.Read(name, o.now()+10*time.Second+time.Duration(i%5)*time.Second, s.of(t, name))
		}
		o.Read("late", o.now()+41*time.Second, s.of(t, "late")) // not a quarter over at 10 s
		o.Read("bad", o.now()+11*time.Second, s.of(t, "bad"))
		o.Read("bad", o.now()+12*time.Second, s.of(t, "bad"))
		pass(10*time.Second - time.Nanosecond)
		if r.count() != 0 {
			t.Fatalf("%d calls before any look is due", r.count())
		}
		pass(time.Nanosecond)
		if r.count() != 3 || s.count() != 2502 || s.err("bad") == nil || s.err("lock-7") != nil {
			t.Errorf("%d calls, %d delivered, bad: %v", r.count(), s.count(), s.err("bad"))
		}
		for _, names := range r.list() {
			if len(names) > MaxNames {
				t.Errorf("%d names in a call", len(names))
			}
		}
		pass(time.Minute)
		if r.count() != 4 || s.count() != 2503 {
			t.Errorf("at the end %d calls, %d delivered", r.count(), s.count())
		}
		if active(o) {
			t.Error("it runs with nothing to look for")
		}
	})
}

func TestLookIsNotOlderThanItsCall(t *testing.T) {
	r, s := &reader{}, &seen{}
	r.before = func(context.Context, int) ([]driver.Record, []error) { time.Sleep(time.Second); return nil, nil }
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		o.Read("a", o.now(), s.of(t, "a"))
		time.Sleep(time.Second / 2) // the call is under way
		o.Read("a", o.now(), s.of(t, "a"))
		o.Read("b", o.now(), s.of(t, "b"))
		pass(10 * time.Second)
		if r.count() != 2 || s.count() != 3 || len(r.list()[1]) != 2 {
			t.Errorf("calls %v, %d delivered", r.list(), s.count())
		}
	})
}

func TestCanceledLook(t *testing.T) {
	r, s := &reader{}, &seen{}
	r.before = func(context.Context, int) ([]driver.Record, []error) { time.Sleep(time.Second); return nil, nil }
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		cancel := o.Read("a", o.now()+time.Second, s.of(t, "a"))
		cancel()
		synctest.Wait()
		if active(o) {
			t.Error("it runs although nothing is looked for")
		}
		cancel = o.Read("b", o.now(), s.of(t, "b"))
		time.Sleep(time.Second / 2) // its call is under way
		cancel()
		pass(time.Minute)
		cancel()
		if s.count() != 0 || r.count() != 1 {
			t.Errorf("%d delivered, %d calls", s.count(), r.count())
		}
	})
}

// A driver that ignores the end of its time delays nobody beyond it, and is not
// called again while it has not returned.
func TestHungLook(t *testing.T) {
	r, s := &reader{}, &seen{}
	free := make(chan struct{})
	r.before = func(_ context.Context, n int) ([]driver.Record, []error) {
		if n == 1 {
			<-free
		}
		return nil, nil
	}
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		free = make(chan struct{}) // of this bubble
		start := time.Now()
		for i := range 1500 {
			name := fmt.Sprint("lock-", i)
			o.Read(name, o.now(), s.of(t, name))
		}
		pass(2 * lookLimit)
		if s.count() != 1500 {
			t.Fatalf("%d delivered", s.count())
		}
		for name, at := range s.when() {
			if at.Sub(start) > lookLimit*5/4 || !errors.Is(s.err(name), timing.ErrHung) {
				t.Fatalf("%s after %v: %v", name, at.Sub(start), s.err(name))
			}
		}
		o.Read("a", o.now(), s.of(t, "a"))
		synctest.Wait()
		if !errors.Is(s.err("a"), timing.ErrHung) || r.count() != 1 {
			t.Errorf("while a call hangs: %v, %d calls", s.err("a"), r.count())
		}
		close(free)
		synctest.Wait()
		o.Read("a", o.now(), s.of(t, "a"))
		synctest.Wait()
		if s.err("a") != nil || r.count() != 2 {
			t.Errorf("after it has returned: %v, %d calls", s.err("a"), r.count())
		}
	})
}

func TestLookIsBounded(t *testing.T) {
	r, s := &reader{}, &seen{}
	r.before = func(ctx context.Context, _ int) ([]driver.Record, []error) {
		<-ctx.Done()
		return make([]driver.Record, 1), []error{ctx.Err()}
	}
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		start := time.Now()
		o.Read("a", o.now(), s.of(t, "a"))
		pass(time.Minute)
		if d := s.when()["a"].Sub(start); d != lookLimit || !errors.Is(s.err("a"), context.DeadlineExceeded) {
			t.Errorf("after %v: %v", d, s.err("a"))
		}
	})
}

func TestOddBatchAnswers(t *testing.T) {
	r, s := &reader{}, &seen{}
	r.before = func(_ context.Context, n int) ([]driver.Record, []error) {
		return make([]driver.Record, n), make([]error, 0)
	}
	lookTest(t, r, func(t *testing.T, o *Reader, _ func()) {
		for i := range 3 {
			o.Read("a", o.now(), s.of(t, "a"))
			synctest.Wait()
			if s.count() != i+1 || !errors.Is(s.err("a"), errOddBatch) {
				t.Errorf("%d delivered: %v", s.count(), s.err("a"))
			}
		}
	})
}

func TestClosedLookout(t *testing.T) {
	r, s := &reader{}, &seen{}
	r.before = func(ctx context.Context, _ int) ([]driver.Record, []error) {
		<-ctx.Done()
		return make([]driver.Record, 1), []error{context.Cause(ctx)}
	}
	lookTest(t, r, func(t *testing.T, o *Reader, shut func()) {
		o.Read("under way", o.now(), s.of(t, "under way"))
		o.Read("later", o.now()+time.Hour, s.of(t, "later"))
		pass(time.Second)
		shut()
		synctest.Wait()
		o.Read("after", o.now()+time.Hour, s.of(t, "after"))
		synctest.Wait()
		for _, name := range []string{"under way", "later", "after"} {
			if !errors.Is(s.err(name), driver.ErrClosed) {
				t.Errorf("%s: %v", name, s.err(name))
			}
		}
		if r.count() != 1 || active(o) {
			t.Errorf("%d calls, running %v", r.count(), active(o))
		}
	})
}
