package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

// The rules of the simulator, beside those of package history.
const (
	// Progress: without faults, nobody waits long for a lock that nobody holds.
	Progress history.Rule = "no progress"
	// BoundedRequests: no loop sends requests faster than its backoff.
	BoundedRequests history.Rule = "too many requests"
	// NothingLeft: no lock stays held by nobody: not while its process lives and has no hold, and not
	// after all processes have ended.
	NothingLeft history.Rule = "left behind"
	// Shutdown: without faults, a shutdown succeeds.
	Shutdown history.Rule = "shutdown"
	// NoHastyLoss: a hold is lost only at its deadline, or by the backend's definite answer.
	NoHastyLoss history.Rule = "loss without need"
	// ReleaseAfterWork: a lock is released only after the function that it was taken for has returned.
	ReleaseAfterWork history.Rule = "release before the end of the work"
	// NoOverrun: no overrun is reported of work that stops within the grace.
	NoOverrun history.Rule = "overrun"
)

// recovery is how long after the last fault everything must be as usual: a lease may have to expire,
// and a stuck lock to be noticed.
func (p *Plan) recovery() time.Duration { return 2*p.maxTTL() + 45*time.Second }

// longestVacancy is how long nobody may hold a lock that others wait for: a little longer than the
// poll interval, which grows to three times its default for a lock that has one holder for long. Leaders may cool down, and instances of Partitions observe each other for a while.
func longestVacancy(p *Plan, name string) time.Duration {
	d := 8 * time.Second
	if p.Backend == Azure {
		d = 20 * time.Second
	}
	if name != "a" && name != "b" {
		d *= 3
	}
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == StepClock && f.Amount < 0 }) {
		d += p.maxTTL() // the expiry of a dead holder lies far ahead, so a waiter watches it for a whole TTL
	}
	return d
}

// sampling is the time between two looks for locks that nobody holds.
const sampling = 4 * time.Second

// idleLease is a lease without a hold, as one sample after another has shown it.
type idleLease struct {
	token   uint64
	samples int
}

// sample looks for locks that a living process holds without a hold. The reply to the grant may be
// under way at one sample, and the release at the next.
func (w *world) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.server.moment()
	before := w.idle
	w.idle = map[string]idleLease{}
	for name, r := range sorted(w.server.records) {
		p := w.server.holders[r.Holder]
		if w.server.back && r.extended < w.plan.Heal {
			continue // its expiry lies far ahead; if somebody waits for it, the rule of progress counts
		}
		if !r.Held(now) || p.closed || strings.Contains(name, "/partition-") && !strings.Contains(name, "/partition-0") || p.holdsLease(r.Holder) {
			continue
		}
		idle := idleLease{r.Token, 1}
		if b := before[name]; b.token == r.Token {
			idle.samples += b.samples
		}
		if w.idle[name] = idle; idle.samples == 3 {
			w.violate(NothingLeft, "%q is held with token %d by %s, which has no hold", name, r.Token, p.name)
		}
	}
}

// judge checks the histories of all names.
func (w *world) judge() {
	for name, lines := range sorted(w.lines) {
		lines = append(lines, w.everywhere...)
		slices.SortStableFunc(lines, func(a, b history.Line) int { return cmp.Compare(a.At, b.At) })
		h, err := history.Merge(lines)
		if err != nil {
			w.violate(history.Rule("history"), "%q: %v", name, err)
			continue
		}
		for _, v := range history.Check(h).Violations {
			w.violations = append(w.violations, history.Violation{Rule: v.Rule, At: v.At, Text: name + ": " + v.Text})
			w.tracef("VIOLATION", "%s at %v: %s: %s", v.Rule, v.At, name, v.Text)
		}
		w.judgeProgress(name, h)
	}
}

// judgeProgress looks for a time without a holder in which somebody waited all the time.
func (w *world) judgeProgress(name string, h *history.History) {
	begin := w.plan.Heal + w.plan.recovery()
	free := begin
	gap := func(until time.Duration) {
		from := free
		for _, a := range w.asks[name] {
			waited := min(a.until, until) - max(a.from, from)
			// A request may meet a lease that its holder does not know of, because the reply was lost.
			// Then a process that only polls waits for another interval.
			polling := 8*time.Second + a.p.plan.Poll
			if waited > max(longestVacancy(&w.plan, name), polling) {
				w.violate(Progress, "%q: from %v to %v %s waits and nobody holds the lock", name, max(a.from, from), min(a.until, until), a.p.name)
				return
			}
		}
	}
	for _, hold := range h.Holds { // sorted by From
		if hold.From > free {
			gap(hold.From)
		}
		free = max(free, hold.Until)
	}
	if w.plan.Duration > free {
		gap(w.plan.Duration)
	}
}
