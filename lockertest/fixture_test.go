package lockertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a store with a settable clock, which can be made to hang and to refuse calls. Its notes are for faults that
// need to remember something.
type fixture struct {
	store *memory.Store
	plain *memory.Locker // without faults

	mu    sync.Mutex
	clock time.Time
	notes map[string]any
}

func newFixture() *fixture {
	w := &fixture{clock: time.Now(), notes: map[string]any{}}
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

// first returns the value that a key got first.
func first[T any](c *call, key string, value T) T {
	before, ok := c.note(key, value).(T)
	if !ok {
		return value
	}
	c.note(key, before)
	return before
}

// record reads the record without the faults.
func (w *fixture) record(name string) driver.Record {
	r, _ := w.plain.Inspect(context.Background(), name)
	return r
}

// write writes data without the faults, whatever their revision is.
func (w *fixture) write(l driver.Lease, data []byte) error {
	for {
		_, at, err := w.plain.ReadData(context.Background(), l.Name)
		if err == nil {
			err = w.plain.WriteData(context.Background(), l, data, at)
		}
		if !errors.Is(err, driver.ErrConflict) {
			return err
		}
	}
}

// holds reports whether a lease holds its lock, without the faults.
func (w *fixture) holds(l driver.Lease) bool { return w.write(l, w.record(l.Name).Data) == nil }

// free frees a name without the faults, and reports whether it could.
func (w *fixture) free(name string) bool {
	return w.plain.BreakNow(context.Background(), name, driver.BreakAnybody()) == nil
}

// list returns the records with a prefix, without the faults.
func (w *fixture) list(prefix string) (all []driver.Record) {
	for r, err := range w.plain.List(context.Background(), prefix) {
		if err == nil {
			all = append(all, r)
		}
	}
	return all
}

// forget removes a record. See forgets.
func (w *fixture) forget(name string) {
	w.store.Remove(name)
	w.note("forgotten "+name, true)
}

// stall makes calls about a name wait until resume is called.
func (w *fixture) stall(_ context.Context, name string) (resume func(), err error) {
	answers := make(chan struct{})
	w.note("stalled "+name, answers)
	w.note("stalled", answers) // for Close, which is about no name
	return func() {
		w.note("stalled "+name, nil)
		w.note("stalled", nil)
		close(answers)
	}, nil
}

// refuse makes the store refuse calls about a name with an error until end is called.
func (w *fixture) refuse(mark func(error) error) func(context.Context, string) (func(), error) {
	return func(_ context.Context, name string) (end func(), err error) {
		w.note("refused "+name, mark(errors.New("refused")))
		return func() { w.note("refused "+name, nil) }, nil
	}
}

func opErr(name string, err error) error {
	return &driver.OpError{Op: "try", Backend: "memory", Name: name, Err: err}
}

func heldErr(r driver.Record) error {
	return opErr(r.Name, &driver.HeldError{Record: r})
}

// call is one call of a Locker with a fault. A fault may change it before it is sent.
type call struct {
	driver.Call
	*fixture
	ctx    context.Context
	next   driver.Next
	locker int // which Locker of the fixture it is
}

// send makes the call as it is now.
func (c *call) send() driver.Answer { return c.next(c.ctx, c.Call) }

// lease is what the call says about its lease; of a batch, the first.
func (c *call) lease() driver.Lease {
	if len(c.Leases) > 0 {
		return c.Leases[0]
	}
	return c.Concerned()
}

// lock is the name of the call's lock; of a batch, the first.
func (c *call) lock() string {
	switch {
	case len(c.Names) > 0:
		return c.Names[0]
	case c.Name != "":
		return c.Name
	}
	return c.lease().Name
}

// own is a key for what each Locker notes for itself.
func (c *call) own(key string) string { return fmt.Sprint("Locker ", c.locker, " ", key) }

// err is an error of the call, and fail an answer with it.
func (c *call) err(err error) error {
	if c.Method == driver.MethodLeave {
		return opErr("", err) // it is about several names
	}
	return opErr(c.lock(), err)
}

func (c *call) fail(err error) driver.Answer { return driver.Answer{Err: c.err(err)} }

// pretend answers that all went well, without the store.
func (c *call) pretend() driver.Answer {
	return driver.Answer{Lease: c.Lease, Leases: c.Leases, Errs: make([]error, len(c.Leases))}
}

// stalled is closed when the store answers again, or nil if it answers. hang waits for that.
func (c *call) stalled() chan struct{} {
	key := "stalled " + c.lock()
	if c.Method == driver.MethodClose {
		key = "stalled"
	}
	answers, _ := c.noted(key).(chan struct{})
	return answers
}

func (c *call) hang() {
	if answers := c.stalled(); answers != nil {
		<-answers
	}
}

// wait is hang with the time limit of the context or, without one, its own. It returns the error then.
func (c *call) wait() error {
	answers := c.stalled()
	if answers == nil {
		return nil
	}
	var ownLimit <-chan time.Time
	if _, limited := c.ctx.Deadline(); !limited {
		ownLimit = time.After(300 * time.Millisecond)
	}
	select {
	case <-answers:
		return nil
	case <-c.ctx.Done():
		return c.err(c.ctx.Err())
	case <-ownLimit:
		return c.err(errors.New("no answer"))
	}
}

// refusal is the error of a call that the store refuses, or nil.
func (c *call) refusal() error {
	if err, refused := c.noted("refused " + c.lock()).(error); refused {
		return c.err(err)
	}
	return nil
}

// spoil answers a call in place of the store, which it asks by send if it wants to. It is called for every call of a
// Locker that does I/O: it is around of driver.Intercept.
type spoil func(c *call) driver.Answer

// reachable is the store, as far as it does not hang or refuse.
var reachable = each(func(c *call) driver.Answer {
	if err := cmp.Or(c.wait(), c.refusal()); err != nil {
		return driver.Answer{Err: err}
	}
	return c.send()
})

// spoiled is a Locker with a fault.
type spoiled struct {
	driver.Locker
	w *fixture
	f fault
}

func (s spoiled) Info() driver.Info {
	i := s.Locker.Info()
	if s.f.info != nil {
		s.f.info(s.w, &i)
	}
	return i
}

func (s spoiled) Capabilities() driver.Capabilities {
	c := s.Locker.Capabilities()
	if s.f.has != nil {
		s.f.has(&c)
	}
	return c
}

// locker makes another Locker on the store, with a fault.
func (w *fixture) locker(l driver.Locker, f fault) driver.Locker {
	number, do := w.count("Lockers"), reachable
	if f.do != nil {
		do = chain(f.do, reachable)
	}
	return spoiled{driver.Intercept(l, func(ctx context.Context, of driver.Call, next driver.Next) driver.Answer {
		return do(&call{Call: of, fixture: w, ctx: ctx, next: next, locker: number})
	}), w, f}
}

// config is for a suite whose Lockers have the fault. The zero fault is none.
func (w *fixture) config(f fault) Config {
	return Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l := w.store.Locker()
			t.Cleanup(func() {
				w.note("over", true)
				_ = l.Close(context.WithoutCancel(t.Context()))
			})
			return w.locker(l, f)
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
