package sim

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/history"
)

// process is one life of a process of the plan.
type process struct {
	w      *world
	plan   Process
	index  int // in the plan
	number int // of this life
	name   string
	client *holdfast.Client
	actors sync.WaitGroup
	ctx    context.Context // of the program; ends with the process
	cancel context.CancelFunc
	gone   context.Context // ends when the Locker is closed, or the process crashes
	close  context.CancelFunc

	frozen atomic.Int64 // the time at which the process was paused; 0 while it runs

	// The world's mu guards the rest.
	dice        dice
	closed      bool
	crashed     bool
	wasPaused   bool
	queue       *queue // nil if it does not follow hints
	cutFrom     time.Duration
	cutUntil    time.Duration
	cutRefuses  bool
	deniedUntil time.Duration
	slowUntil   time.Duration
	slow        time.Duration
	lossyUntil  time.Duration
	lossy       float64
	deafUntil   time.Duration
	garbled     time.Duration // how late wake-ups come until then; 0: they are lost
	frozenUntil time.Duration
	holds       map[*tracked]struct{}
	seen        map[*holdfast.Hold]struct{}
	rates       map[rateKey]*rate
	leases      map[leaseKey]*lease
	working     map[driver.LeaseID]int // functions that run
	gathering   map[string]int         // callers that acquire several locks, by the name of each

	resumed time.Duration                       // when the latest pause ended
	waiters map[driver.WaiterID]driver.WaiterID // their names, see waiterOf
	unwoken map[asking]time.Duration            // when a waiter was last refused without a position that is woken
}

// function runs a function of Do, a runner or Partitions.
func (p *process) function(ctx context.Context, run func(h *holdfast.Hold) error) error {
	h, _ := holdfast.HoldFromContext(ctx)
	return p.under([]*holdfast.Hold{h}, func() error { return run(h) })
}

// under runs a function, while which none of its locks may be released.
func (p *process) under(holds []*holdfast.Hold, run func() error) error {
	count := func(n int) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		for _, h := range holds {
			p.working[h.Lease().ID] += n
		}
	}
	count(1)
	defer count(-1)
	return run()
}

// reads reports whether a hold is that of a reader.
func reads(h *holdfast.Hold) bool { return h.Lease().Mode == driver.Shared }

// lease is what the process knows of a lease that it was granted.
type lease struct {
	driver.Lease
	sent time.Duration // when the last successful request was sent
	late bool          // its reply came around the deadline, so the process may count it or not
	lost bool          // the backend has said so
}

// deadline is when the process stops to count on the lease.
func (l *lease) deadline() time.Duration { return l.sent + l.TTL - l.TTL/6 }

// clockTolerance is for the drift of clocks within a TTL.
const clockTolerance = 100 * time.Millisecond

// holdsLease reports whether a hold has the ID. mu is held.
func (p *process) holdsLease(id string) bool {
	for h := range p.holds {
		if h.hold.Lease().ID.Reveal() == id {
			return true
		}
	}
	return false
}

func newProcess(w *world, index, number int) *process {
	p := &process{
		w: w, plan: w.plan.Processes[index], index: index, number: number, name: fmt.Sprintf("process %d", number),
		dice:  newDice(w.plan.Seed, 4, uint64(index), uint64(number)),
		holds: map[*tracked]struct{}{}, seen: map[*holdfast.Hold]struct{}{}, rates: map[rateKey]*rate{}, leases: map[leaseKey]*lease{},
		working: map[driver.LeaseID]int{}, gathering: map[string]int{},
		waiters: map[driver.WaiterID]driver.WaiterID{}, unwoken: map[asking]time.Duration{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.gone, p.close = context.WithCancel(context.Background())
	return p
}

// run starts the program.
func (p *process) run() {
	opts := []holdfast.ClientOption{
		holdfast.WithTTL(p.plan.TTL), holdfast.WithElapsed(p.elapsed), holdfast.WithOwner(p.name),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(p.observe),
	}
	if p.plan.Poll > 0 {
		opts = append(opts, holdfast.WithPollInterval(p.plan.Poll))
	}
	l := &link{p, p.w}
	if p.plan.Wake == Hints {
		p.queue = newQueue(l)
	}
	client, err := holdfast.New(l, opts...)
	if err != nil {
		panic(err) // the plan is wrong
	}
	p.client = client
	p.w.note(p.name, "starts as process %d of the plan, with TTL %v", p.index+1, p.plan.TTL)
	for i, a := range p.plan.Does {
		p.start(a, newDice(p.w.plan.Seed, 5, uint64(p.number), uint64(i)))
	}
}

// elapsed is the process's clock. It stands still during a pause.
func (p *process) elapsed() time.Duration {
	now := time.Duration(p.frozen.Load())
	if now == 0 {
		now = p.w.now()
	}
	return time.Hour + now + time.Duration(float64(now)*p.plan.Drift)
}

// observe checks the events of the client.
func (p *process) observe(e holdfast.Event) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.trace != nil && e.Type != holdfast.EventError && e.Type != holdfast.EventHolderSeen {
		p.w.tracef(p.name, "reports: %v", e)
	}
	if l := p.leases[leaseKey{e.Name, e.Token}]; e.Type == holdfast.EventLost && l != nil && !l.lost && !l.late && !p.wasPaused &&
		!p.crashed && p.ctx.Err() == nil {
		if early := l.deadline() - p.w.now(); early > clockTolerance {
			p.w.violate(NoHastyLoss, "%s: %v, %v before its deadline", p.name, e, early)
		}
	}
	if e.Type == holdfast.EventOverrun && !p.crashed && !p.wasPaused {
		p.w.violate(NoOverrun, "%s: %v, although the work has ended", p.name, e)
	}
}

// sleep waits. It returns an error if ctx ends, or the process does.
func (p *process) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.gone.Done():
		return driver.ErrClosed
	}
}

// pass waits like sleep, and costs less. It may end up to a latency later than ctx.
func (p *process) pass(ctx context.Context, d time.Duration) error {
	if d > 2*p.w.plan.Latency {
		return p.sleep(ctx, d)
	}
	time.Sleep(d)
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.gone.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

// rest waits, as a program does: it does not go on while the process is paused.
func (p *process) rest(ctx context.Context, d time.Duration) error {
	err := p.sleep(ctx, d)
	if running := p.awaitRunning(context.Background()); running != nil {
		return running
	}
	return err
}

// awaitRunning waits until the process is not paused.
func (p *process) awaitRunning(ctx context.Context) error {
	for p.frozen.Load() != 0 {
		p.w.mu.Lock()
		wait := p.frozenUntil - p.w.now()
		p.w.mu.Unlock()
		if err := p.sleep(ctx, max(wait, time.Nanosecond)); err != nil {
			return err
		}
	}
	return nil
}

// pause stops the process until a time. Nothing reaches it, nothing leaves it, and its clock stands
// still. Its goroutines cannot be stopped, so the time limits of its requests go on. mu is held.
func (p *process) pause(until time.Duration) bool {
	if p.frozen.Load() != 0 || until <= p.w.now() {
		return false
	}
	p.wasPaused, p.frozenUntil = true, until
	p.frozen.Store(int64(p.w.now()))
	p.w.everywhere = append(p.w.everywhere, history.Line{At: p.w.now(), Process: p.number, Client: p.index + 1, Kind: history.Pause})
	return true
}

// resume ends a pause. mu is held.
func (p *process) resume() {
	before := time.Duration(p.frozen.Swap(0))
	if before == 0 {
		return
	}
	p.resumed = p.w.now()
	p.w.everywhere = append(p.w.everywhere, history.Line{At: p.w.now(), Process: p.number, Client: p.index + 1, Kind: history.Resume})
	for h := range p.holds {
		if h.hold.Err() != nil {
			h.errNil = min(h.errNil, before)
		}
	}
}

// cut cuts the process off until a time. mu is held.
func (p *process) cut(until time.Duration, refuses bool) {
	p.cutFrom, p.cutUntil, p.cutRefuses = p.w.now(), max(p.cutUntil, until), refuses
	if p.queue == nil {
		return
	}
	if refuses {
		p.queue.interrupt()
		return
	}
	p.w.after(cursorTimeout, func() {
		if p.w.now() < p.cutUntil {
			p.queue.interrupt()
		}
	})
}

// disconnect makes every call fail from now on. mu is held.
func (p *process) disconnect() {
	p.closed = true
	p.close()
	for name, watches := range p.w.server.watches {
		p.w.server.watches[name] = slices.DeleteFunc(watches, func(o *watch) bool { return o.p == p })
	}
}

// crash ends the process at once. Its goroutines end a little later, without any effect.
func (p *process) crash() {
	w := p.w
	w.mu.Lock()
	p.crashed = true
	p.disconnect()
	if p.frozen.Load() != 0 {
		p.resume()
	}
	for h := range p.holds {
		p.end(h)
	}
	w.mu.Unlock()
	p.cancel()
	w.ended.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.client.Shutdown(ctx) // its context has ended, so that it does not wait
		p.actors.Wait()
	})
}

// stop shuts the process down. If first, the program ends before the client.
func (p *process) stop(first bool) {
	if first {
		p.cancel()
		p.actors.Wait()
	}
	const limit = 2 * time.Minute // longer than every lease
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	healthy := p.w.healthy()
	p.w.note(p.name, "shuts down")
	if err := p.client.Shutdown(ctx); err != nil && healthy {
		p.w.mu.Lock()
		p.w.violate(Shutdown, "%s: %v", p.name, err)
		p.w.mu.Unlock()
	}
	p.cancel()
	p.actors.Wait()
}

// tracked is a hold whose context is observed.
type tracked struct {
	id     uint64
	hold   *holdfast.Hold
	from   time.Duration
	errNil time.Duration
}

// ask is a caller that waits for a lock, or for several.
type ask struct {
	p           *process
	id          uint64
	name        string
	reads       bool     // it asks as a reader
	names       []string // of several locks, and of the queue for them, until it has them
	from, until time.Duration
}

// ask notes that a caller begins to wait. In the queue of the process it keeps its place.
func (p *process) ask(name string, queued bool) *ask {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	a := &ask{p: p, id: w.ids, name: name, from: w.now(), until: history.Never}
	w.asks[name] = append(w.asks[name], a)
	w.line(name, p.line(history.Line{Kind: history.Ask, ID: a.id, Queued: queued}))
	return a
}

func (p *process) line(l history.Line) history.Line {
	l.At, l.Process, l.Client = p.w.now(), p.number, p.index+1
	return l
}

// quit notes that a caller waits no longer.
func (a *ask) quit() {
	w := a.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.until == history.Never {
		a.until = w.now()
		w.line(a.name, a.p.line(history.Line{Kind: history.Quit, ID: a.id}))
	}
}

// track observes a hold from now on. a is what it was asked for by, or nil.
func (p *process) track(h *holdfast.Hold, a *ask) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := p.seen[h]; known || p.crashed || h.Context().Err() != nil {
		return
	}
	p.seen[h] = struct{}{}
	t := &tracked{hold: h, from: w.now(), errNil: history.Never}
	if a != nil {
		t.id, a.until = a.id, w.now()
		if a.name != h.Name() { // a slot has a history of its own
			asked := p.line(history.Line{Kind: history.Ask, ID: t.id})
			asked.At = a.from
			w.line(h.Name(), asked)
		}
	} else {
		w.ids++
		t.id = w.ids
		if l := p.leases[leaseKey{h.Name(), h.Token()}]; l != nil { // asked for when the request was sent
			asked := p.line(history.Line{Kind: history.Ask, ID: t.id})
			asked.At = l.sent
			w.line(h.Name(), asked)
		}
	}
	p.holds[t] = struct{}{}
	if w.trace != nil {
		w.tracef(p.name, "holds %q with token %d", h.Name(), h.Token())
	}
	l := p.line(history.Line{Kind: history.Live, ID: t.id, Token: h.Token(), Shared: reads(h)})
	l.ErrNil = l.At
	w.line(h.Name(), l)
	context.AfterFunc(h.Context(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.end(t)
	})
}

// end notes that the context of a hold ends at this moment. mu is held.
func (p *process) end(t *tracked) {
	if _, live := p.holds[t]; !live {
		return
	}
	delete(p.holds, t)
	l := p.line(history.Line{Kind: history.Live, ID: t.id, Token: t.hold.Token(), Shared: reads(t.hold)})
	l.At = max(l.At-1, t.from) // live before this moment, not at it
	l.ErrNil = min(l.At, t.errNil)
	if paused := p.frozen.Load(); paused != 0 { // Err could not be asked since then
		l.ErrNil = min(l.ErrNil, time.Duration(paused))
	}
	p.w.line(t.hold.Name(), l)
	if p.w.trace == nil {
		return
	}
	p.w.tracef(p.name, "no longer holds %q with token %d: %v", t.hold.Name(), t.hold.Token(), context.Cause(t.hold.Context()))
}

// sorted ranges over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
