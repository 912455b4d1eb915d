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

// backend is a BatchInspector that notes its calls.
type backend struct {
	mu     sync.Mutex
	calls  [][]string
	inject func(ctx context.Context, n int) ([]driver.Record, []error) // the result of call n, from 1; nil, nil: read
}

func (b *backend) InspectBatch(ctx context.Context, _ driver.WaiterID, names []string) ([]driver.Record, []error) {
	b.mu.Lock()
	b.calls = append(b.calls, names)
	n := len(b.calls)
	b.mu.Unlock()
	if b.inject != nil {
		if records, errs := b.inject(ctx, n); records != nil || errs != nil {
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
func (b *backend) list() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *backend) count() int { return len(b.list()) }

// results collects what is delivered.
type results struct {
	mu   sync.Mutex
	at   map[string]time.Time
	errs map[string]error
	n    int
}

func (s *results) of(t *testing.T, name string) func(driver.Record, error) {
	return func(r driver.Record, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && r.Name != name {
			t.Errorf("the read of %q delivered %q", name, r.Name)
		}
		if s.at == nil {
			s.at, s.errs = map[string]time.Time{}, map[string]error{}
		}
		s.at[name], s.errs[name] = time.Now(), err
		s.n++
	}
}

// err is the error that was delivered for a name, or nil.
func (s *results) err(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errs[name]
}

// when returns when each name was delivered.
func (s *results) when() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at)
}

func (s *results) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func active(r *Reader) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return !r.calls.Wait(ended)
}

// sleep lets time pass, and waits until every goroutine is blocked.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const callLimit = 3 * time.Second

// readerTest runs fn in a bubble with a Reader that is closed at the end. shut ends its closing
// context.
func readerTest(t *testing.T, b *backend, fn func(t *testing.T, r *Reader, shut func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		closing, shut := context.WithCancelCause(context.Background())
		r := New(closing, b, "", func() time.Duration { return time.Since(start) }, callLimit)
		defer func() {
			shut(cause.ErrShutdown)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if !r.Close(ctx) {
				t.Error("the reader has not ended")
			}
		}()
		fn(t, r, func() { shut(cause.ErrShutdown) })
	})
}

func TestReadsDueTogetherShareACall(t *testing.T) {
	b, s := &backend{}, &results{}
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		for i := range 2500 { // due from 10 s to 14 s
			name := fmt.Sprint("lock-", i)
			r.Read(name, r.now()+10*time.Second+time.Duration(i%5)*time.Second, s.of(t, name))
		}
		r.Read("late", r.now()+41*time.Second, s.of(t, "late")) // not a quarter over at 10 s
		r.Read("bad", r.now()+11*time.Second, s.of(t, "bad"))
		r.Read("bad", r.now()+12*time.Second, s.of(t, "bad"))
		sleep(10*time.Second - time.Nanosecond)
		if b.count() != 0 {
			t.Fatalf("%d calls before any read is due", b.count())
		}
		sleep(time.Nanosecond)
		if b.count() != 3 || s.count() != 2502 || s.err("bad") == nil || s.err("lock-7") != nil {
			t.Errorf("%d calls, %d delivered, bad: %v", b.count(), s.count(), s.err("bad"))
		}
		for _, names := range b.list() {
			if len(names) > MaxNames {
				t.Errorf("%d names in a call", len(names))
			}
		}
		sleep(time.Minute)
		if b.count() != 4 || s.count() != 2503 {
			t.Errorf("at the end %d calls, %d delivered", b.count(), s.count())
		}
		if active(r) {
			t.Error("it runs with nothing to read")
		}
	})
}

func TestReadIsNotOlderThanItsRequest(t *testing.T) {
	b, s := &backend{}, &results{}
	b.inject = func(context.Context, int) ([]driver.Record, []error) { time.Sleep(time.Second); return nil, nil }
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		r.Read("a", r.now(), s.of(t, "a"))
		time.Sleep(time.Second / 2) // the call is under way
		r.Read("a", r.now(), s.of(t, "a"))
		r.Read("b", r.now(), s.of(t, "b"))
		sleep(10 * time.Second)
		if b.count() != 2 || s.count() != 3 || len(b.list()[1]) != 2 {
			t.Errorf("calls %v, %d delivered", b.list(), s.count())
		}
	})
}

func TestCanceledReadIsNotDelivered(t *testing.T) {
	b, s := &backend{}, &results{}
	b.inject = func(context.Context, int) ([]driver.Record, []error) { time.Sleep(time.Second); return nil, nil }
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		cancel := r.Read("a", r.now()+time.Second, s.of(t, "a"))
		cancel()
		synctest.Wait()
		if active(r) {
			t.Error("it runs although nothing is planned")
		}
		cancel = r.Read("b", r.now(), s.of(t, "b"))
		time.Sleep(time.Second / 2) // its call is under way
		cancel()
		sleep(time.Minute)
		cancel()
		if s.count() != 0 || b.count() != 1 {
			t.Errorf("%d delivered, %d calls", s.count(), b.count())
		}
	})
}

// A driver that ignores the end of its time limit delays nobody for longer than its patience,
// and is not called again until it has returned.
func TestHungCallDelaysNobody(t *testing.T) {
	b, s := &backend{}, &results{}
	free := make(chan struct{})
	b.inject = func(_ context.Context, n int) ([]driver.Record, []error) {
		if n == 1 {
			<-free
		}
		return nil, nil
	}
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		free = make(chan struct{}) // of this bubble
		start := time.Now()
		for i := range 1500 {
			name := fmt.Sprint("lock-", i)
			r.Read(name, r.now(), s.of(t, name))
		}
		sleep(2 * callLimit)
		if s.count() != 1500 {
			t.Fatalf("%d delivered", s.count())
		}
		for name, at := range s.when() {
			if at.Sub(start) > callLimit*5/4 || !errors.Is(s.err(name), timing.ErrHung) {
				t.Fatalf("%s after %v: %v", name, at.Sub(start), s.err(name))
			}
		}
		r.Read("a", r.now(), s.of(t, "a"))
		synctest.Wait()
		if !errors.Is(s.err("a"), timing.ErrHung) || b.count() != 1 {
			t.Errorf("while a call hangs: %v, %d calls", s.err("a"), b.count())
		}
		close(free)
		synctest.Wait()
		r.Read("a", r.now(), s.of(t, "a"))
		synctest.Wait()
		if s.err("a") != nil || b.count() != 2 {
			t.Errorf("after it has returned: %v, %d calls", s.err("a"), b.count())
		}
	})
}

func TestCallHasATimeLimit(t *testing.T) {
	b, s := &backend{}, &results{}
	b.inject = func(ctx context.Context, _ int) ([]driver.Record, []error) {
		<-ctx.Done()
		return make([]driver.Record, 1), []error{ctx.Err()}
	}
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		start := time.Now()
		r.Read("a", r.now(), s.of(t, "a"))
		sleep(time.Minute)
		if d := s.when()["a"].Sub(start); d != callLimit || !errors.Is(s.err("a"), context.DeadlineExceeded) {
			t.Errorf("after %v: %v", d, s.err("a"))
		}
	})
}

func TestMissingAnswersAreAnError(t *testing.T) {
	b, s := &backend{}, &results{}
	b.inject = func(_ context.Context, n int) ([]driver.Record, []error) {
		return make([]driver.Record, n), make([]error, 0)
	}
	readerTest(t, b, func(t *testing.T, r *Reader, _ func()) {
		for i := range 3 {
			r.Read("a", r.now(), s.of(t, "a"))
			synctest.Wait()
			if s.count() != i+1 || !errors.Is(s.err("a"), errMissingAnswers) {
				t.Errorf("%d delivered: %v", s.count(), s.err("a"))
			}
		}
	})
}

func TestReadsFailAfterClosing(t *testing.T) {
	b, s := &backend{}, &results{}
	b.inject = func(ctx context.Context, _ int) ([]driver.Record, []error) {
		<-ctx.Done()
		return make([]driver.Record, 1), []error{context.Cause(ctx)}
	}
	readerTest(t, b, func(t *testing.T, r *Reader, shut func()) {
		r.Read("under way", r.now(), s.of(t, "under way"))
		r.Read("later", r.now()+time.Hour, s.of(t, "later"))
		sleep(time.Second)
		shut()
		synctest.Wait()
		r.Read("after", r.now()+time.Hour, s.of(t, "after"))
		synctest.Wait()
		for _, name := range []string{"under way", "later", "after"} {
			if !errors.Is(s.err(name), driver.ErrClosed) {
				t.Errorf("%s: %v", name, s.err(name))
			}
		}
		if b.count() != 1 || active(r) {
			t.Errorf("%d calls, running %v", b.count(), active(r))
		}
	})
}
