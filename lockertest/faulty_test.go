package lockertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faulty is a Locker with some methods replaced.
type faulty struct {
	Locker       driver.Locker
	tryAcquire   func(context.Context, driver.Request) (driver.Lease, error)
	renew        func(context.Context, driver.Lease) error
	release      func(context.Context, driver.Lease) error
	inspect      func(context.Context, string) (driver.Record, error)
	info         func(driver.Info) driver.Info
	capabilities func(driver.Capabilities) driver.Capabilities
	close        func(context.Context) error
}

// spoiled is the Locker that a faulty stands for.
type spoiled struct {
	driver.Locker
	faulty *faulty
}

func (f *faulty) spoiled() spoiled { return spoiled{driver.Intercept(f.Locker, f.intercept), f} }

func (f *faulty) intercept(ctx context.Context, call driver.Call, next driver.Next) (a driver.Answer) {
	switch {
	case call.Method == driver.MethodTryAcquire && f.tryAcquire != nil:
		a.Lease, a.Err = f.tryAcquire(ctx, call.Request)
	case call.Method == driver.MethodRenew && f.renew != nil:
		a.Lease, a.Err = call.Lease, f.renew(ctx, call.Lease)
	case call.Method == driver.MethodRelease && f.release != nil:
		a.Err = f.release(ctx, call.Lease)
	case call.Method == driver.MethodInspect && f.inspect != nil:
		a.Record, a.Err = f.inspect(ctx, call.Name)
	case call.Method == driver.MethodClose && f.close != nil:
		a.Err = f.close(ctx)
	default:
		return next(ctx, call)
	}
	return a
}

func (s spoiled) Info() driver.Info {
	if s.faulty.info != nil {
		return s.faulty.info(s.Locker.Info())
	}
	return s.Locker.Info()
}

func (s spoiled) Capabilities() driver.Capabilities {
	if s.faulty.capabilities != nil {
		return s.faulty.capabilities(s.Locker.Capabilities())
	}
	return s.Locker.Capabilities()
}

// replaces makes a fault of a method: do answers in its place, and had are the capabilities without the fault.
func replaces(method driver.Method,
	do func(w *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) driver.Answer) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		had := f.Locker.Capabilities()
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method != method {
				return next(ctx, call)
			}
			return do(w, had, ctx, call)
		})
	}
}

// fixture is a store with a settable clock. Its notes are for faults that need to remember
// something.
type fixture struct {
	store *memory.Store
	plain *memory.Locker // without faults
	ctx   context.Context

	mu    sync.Mutex
	clock time.Time
	notes map[string]any
}

func newFixture() *fixture {
	w := &fixture{clock: time.Now(), notes: map[string]any{}, ctx: context.Background()}
	w.store = memory.NewStore(memory.WithClock(w.now))
	w.plain = w.store.Locker()
	return w
}

func (w *fixture) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *fixture) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

// note stores a value and returns the previous one.
func (w *fixture) note(key string, value any) (before any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.notes[key]
	w.notes[key] = value
	return before
}

// noted returns the stored value.
func (w *fixture) noted(key string) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes[key]
}

// count returns 1, 2, 3, … for each key.
func (w *fixture) count(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, _ := w.notes[key].(int)
	w.notes[key] = n + 1
	return n + 1
}

// record reads the record without the faults.
func (w *fixture) record(name string) driver.Record {
	r, _ := w.plain.Inspect(w.ctx, name)
	return r
}

// write writes data without the faults, whatever their revision is.
func (w *fixture) write(ctx context.Context, l driver.Lease, data []byte) error {
	for {
		_, at, err := w.plain.ReadData(ctx, l.Name)
		if err == nil {
			err = w.plain.WriteData(ctx, l, data, at)
		}
		if !errors.Is(err, driver.ErrConflict) {
			return err
		}
	}
}

// free frees a name without the faults.
func (w *fixture) free(name string) { _ = w.plain.BreakNow(w.ctx, name, driver.BreakAnybody()) }

// stall makes the calls of stallable Lockers about a name wait until resume is called.
func (w *fixture) stall(_ context.Context, name string) (func(), error) {
	answers := make(chan struct{})
	w.note("stalled "+name, answers)
	return func() {
		w.note("stalled "+name, nil)
		close(answers)
	}, nil
}

// wait returns when the store answers calls about a name again, or an error that wraps the
// context's. It has a time limit of its own if the context has none.
func (w *fixture) wait(ctx context.Context, name string) error {
	answers, _ := w.noted("stalled " + name).(chan struct{})
	if answers == nil {
		return nil
	}
	var ownLimit <-chan time.Time
	if _, limited := ctx.Deadline(); !limited {
		ownLimit = time.After(300 * time.Millisecond)
	}
	select {
	case <-answers:
		return nil
	case <-ctx.Done():
		return opErr(name, ctx.Err())
	case <-ownLimit:
		return opErr(name, errors.New("no answer"))
	}
}

// refuse makes stallable Lockers refuse calls about a name with an error until it is ended.
func (w *fixture) refuse(mark func(error) error) func(context.Context, string) (func(), error) {
	return func(_ context.Context, name string) (end func(), err error) {
		w.note("refused "+name, mark(errors.New("refused")))
		return func() { w.note("refused "+name, nil) }, nil
	}
}

// refusal is the error of calls about a name that is refused.
func (w *fixture) refusal(name string) error {
	if err, refused := w.noted("refused " + name).(error); refused {
		return opErr(name, err)
	}
	return nil
}

// hang returns when the store answers calls about a name again.
func (w *fixture) hang(name string) error {
	if answers, _ := w.noted("stalled " + name).(chan struct{}); answers != nil {
		<-answers
	}
	return nil
}

func opErr(name string, err error) error {
	return &driver.OpError{Op: "try", Backend: "memory", Name: name, Err: err}
}

func heldErr(r driver.Record) error {
	return opErr(r.Name, &driver.HeldError{Record: r})
}

// fault is one way of breaking the contract.
type fault struct {
	name   string
	caught []string // the clauses that must fail
	says   string   // part of the text of a failure
	make   func(w *fixture, l *faulty)
}

// config is for a suite whose Lockers have the fault.
func (w *fixture) config(spoil func(*fixture, *faulty)) Config {
	return Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l := w.store.Locker()
			t.Cleanup(func() {
				w.note("over", true)
				_ = l.Close(context.WithoutCancel(t.Context()))
			})
			f := &faulty{Locker: l}
			spoil(w, f)
			return f.spoiled()
		},
		Advance: w.advance,
		Forget: func(_ context.Context, name string) error {
			w.store.Remove(name)
			w.note("removed "+name, true)
			return nil
		},
		Stall:  w.stall,
		Deny:   w.refuse(driver.Denied),
		Damage: w.refuse(driver.Damaged),
		FailOver: func(context.Context) error {
			if name, _ := w.noted("lost in a fail-over").(string); name != "" {
				w.store.Remove(name)
			}
			return nil
		},
		Slack:   time.Minute, // ends a hang, since the clock is set
		Secrets: []string{"pa55word"},
	}
}

// racing are the clauses that make many calls at once. Whether these calls meet is up to the
// scheduler, so that one run of such a clause may miss a fault.
var racing = []string{
	"acquire/one winner", "acquire/repeats at once", "expiry/one winner", "race/exclusion", "release batch/race", "datastore/one of many",
}

// TestFaults breaks the memory driver in many ways. The clauses about each fault must detect it.
func TestFaults(t *testing.T) {
	faults := slices.Concat(grantFaults(), leaseFaults(), recordFaults(), inputFaults(), answerFaults(), capabilityFaults(), breakerFaults(),
		checkerFaults(), declarationFaults(), queueFaults(), historyFaults(),
		releaseBatchFaults(), stateFaults(), sharedFaults(), lastingFaults(), notSentFaults())
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cfg := newFixture().config(f.make)
			cfg.Slack = 300 * time.Millisecond // what never happens is waited for that long
			s := newSuite(t, cfg)
			s.soon, s.ownLimit = time.Second, time.Second
			said := ""
			for _, name := range f.caught {
				failures := s.failures(t, name)
				for range 30 {
					if len(failures) > 0 || !slices.Contains(racing, name) {
						break
					}
					failures = s.failures(t, name)
				}
				if len(failures) == 0 {
					t.Errorf("clause %q did not detect the fault", name)
				}
				said += fmt.Sprintln(failures)
			}
			if f.says != "" && !containsFold(said, f.says) {
				t.Errorf("the failures do not say %q:\n%s", f.says, said)
			}
		})
	}
	t.Run("every clause detects a fault", func(t *testing.T) {
		detected := map[string]bool{}
		for _, f := range faults {
			for _, name := range f.caught {
				detected[name] = true
			}
		}
		for _, c := range clauses() {
			if !detected[c.name] {
				t.Errorf("clause %q detects no fault", c.name)
			}
		}
	})
}

// TestNoFaults shows that the failures in TestFaults come from the faults.
func TestNoFaults(t *testing.T) {
	s := newSuite(t, newFixture().config(stallable))
	for _, c := range clauses() {
		if failures := s.failures(t, c.name); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
}

// failures runs one clause and returns its failures.
func (s *suite) failures(t *testing.T, name string) []string {
	t.Helper()
	for _, c := range clauses() {
		if c.name == name {
			if why := s.lacking(c.needs); why != nil {
				t.Fatalf("clause %q is left out: %q", name, why)
			}
			return s.await(s.start(t, c))
		}
	}
	t.Fatalf("there is no clause %q", name)
	return nil
}
