package sim

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/test/history"
)

// Result is what a schedule did and what was wrong.
type Result struct {
	Grants, Requests int
	Violations       []history.Violation
}

// Run runs a schedule. Lines of what happens are written to trace, unless it is nil. Only one
// schedule of a program runs at a time, because all draw from one source.
func Run(t *testing.T, p Plan, trace io.Writer) Result {
	t.Helper()
	_, r := run(t, p, trace)
	return r
}

func run(t *testing.T, p Plan, trace io.Writer) (w *world, r Result) {
	t.Helper()
	w = &world{plan: p, trace: trace, lines: map[string][]history.Line{}, asks: map[string][]*ask{}, registers: map[string]uint64{}}
	defer func() {
		if v := recover(); v != nil { // a goroutine that nothing wakes any more
			w.violate(history.NoLeak, "%v", v)
			r = w.result()
		}
	}()
	defer timing.ReplaceRandom(newDice(p.Seed, 2).Rand)()
	synctest.Test(t, func(*testing.T) { w.run() })
	return w, w.result()
}

// world is one schedule that runs.
type world struct {
	plan   Plan
	start  time.Time
	server *server
	ended  sync.WaitGroup // processes that end

	// mu guards all that follows, and the state of the server and of the processes.
	mu         sync.Mutex
	trace      io.Writer
	processes  []*process // the living ones, by number in the plan
	count      int        // of processes so far
	ids        uint64     // of holds so far
	requests   int
	lines      map[string][]history.Line // by the name of a record
	everywhere []history.Line            // lines that belong to the history of each name
	asks       map[string][]*ask         // by the name of a lock
	several    []*ask                    // for several locks at once
	registers  map[string]uint64         // the token of the last write, by name
	idle       map[leaseKey]int          // leases without a hold, and how many samples have shown each
	violations []history.Violation
}

// step is something that happens at a time.
type step struct {
	at time.Duration
	do func()
}

func (w *world) run() {
	w.start = time.Now()
	w.server = newServer(w)
	w.processes = make([]*process, len(w.plan.Processes))
	var steps []step
	for i, pr := range w.plan.Processes {
		steps = append(steps, step{pr.Start, func() { w.launch(i) }})
	}
	for _, f := range w.plan.Faults {
		steps = append(steps, w.stepsOf(f)...)
	}
	for at := w.plan.Heal + w.plan.recovery(); at < w.plan.Duration; at += sampling {
		steps = append(steps, step{at, w.sample})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	for _, s := range steps {
		time.Sleep(s.at - w.now())
		s.do()
	}
	time.Sleep(w.plan.Duration - w.now())
	w.finish()
	w.judge()
	w.judgeWaits()
}

// finish shuts all processes down, and waits until everything has ended.
func (w *world) finish() {
	for i, p := range w.processes {
		if p != nil {
			w.processes[i] = nil
			w.ended.Go(func() { p.stop(i%2 == 0) })
		}
	}
	w.ended.Wait()
	w.mu.Lock()
	w.server.checkLeft(false)
	w.server.checkPositionsLeft()
	w.mu.Unlock()
	time.Sleep(2 * w.plan.maxTTL())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server.checkLeft(true)
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// healthy reports whether there are no faults any more.
func (w *world) healthy() bool { return w.now() >= w.plan.Heal }

// launch starts a process of the plan.
func (w *world) launch(i int) {
	w.mu.Lock()
	w.count++
	p := newProcess(w, i, w.count)
	w.mu.Unlock()
	w.processes[i] = p
	p.run()
}

// tracef notes an event. mu is held.
func (w *world) tracef(who, format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%14.6f  %-9s  %s\n", w.now().Seconds(), who, fmt.Sprintf(format, args...))
	}
}

func (w *world) note(who, format string, args ...any) {
	if w.trace != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tracef(who, format, args...)
	}
}

// violate notes a violation. mu is held, or nothing runs any more.
func (w *world) violate(rule history.Rule, format string, args ...any) {
	v := history.Violation{Rule: rule, At: w.now(), Text: fmt.Sprintf(format, args...)}
	w.violations = append(w.violations, v)
	w.tracef("VIOLATION", "%s: %s", v.Rule, v.Text)
}

// line adds a line to the history of a name. mu is held.
func (w *world) line(name string, l history.Line) {
	lines := w.lines[name]
	if lines == nil {
		lines = make([]history.Line, 0, 400)
	}
	w.lines[name] = append(lines, l)
}

// excuse makes the history of a name ignore holds that were live at this moment. An empty name means
// all. mu is held.
func (w *world) excuse(name string) {
	a, b := history.Line{At: w.now(), Kind: history.Skew}, history.Line{At: w.now(), Kind: history.Unskew}
	if name == "" {
		w.everywhere = append(w.everywhere, a, b)
		return
	}
	w.lines[name] = append(w.lines[name], a, b)
}

func (w *world) result() Result {
	return Result{Grants: w.server.grants, Requests: w.requests, Violations: w.violations}
}

// after calls fn with mu held.
func (w *world) after(d time.Duration, fn func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		fn()
	})
}
