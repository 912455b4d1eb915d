package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
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
// poll interval, which grows to three times its default for a lock that has one holder for long. Leaders may cool down, and instances of
// Partitions observe each other for a while.
func longestVacancy(p *Plan, name string) time.Duration {
	d := 8 * time.Second
	if p.Backend == Azure {
		d = 20 * time.Second
	}
	if name != "a" && name != "b" && name != "cache" {
		d *= 3
	}
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == StepClock && f.Amount < 0 }) {
		d += p.maxTTL() // the expiry of a dead holder lies far ahead, so a waiter watches it for a whole TTL
	}
	return d
}

// sampling is the time between two looks for locks that nobody holds.
const sampling = 4 * time.Second

// leaseKey is one lease of a name.
type leaseKey struct {
	name  string
	token uint64
}

// sample looks for locks that a living process holds without a hold. The reply to the grant may be
// under way at one sample, and the release at the next.
func (w *world) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.server.moment()
	before := w.idle
	w.idle = map[leaseKey]int{}
	for name, r := range sorted(w.server.records) {
		for _, one := range r.live(now) {
			p := w.server.holders[one.Holder]
			if w.server.back && p.extended < w.plan.Heal {
				continue // its expiry lies far ahead; if somebody waits for it, the rule of progress counts
			}
			if p.closed || p.gathers(name) || strings.Contains(name, "/partition-") && !strings.Contains(name, "/partition-0") ||
				p.holdsLease(one.Holder) {
				continue
			}
			key := leaseKey{name, one.Token}
			if w.idle[key] = before[key] + 1; w.idle[key] == 3 {
				w.violate(NothingLeft, "%q is held with token %d by %s, which has no hold", name, one.Token, p.name)
			}
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

// judgeProgress looks for a time without a holder in which somebody waited all the time. Readers wait only while another has
// the lock alone, or waits for that.
func (w *world) judgeProgress(name string, h *history.History) {
	var taken, written []history.Span
	for _, hold := range h.Holds {
		span := history.Span{Start: hold.From, Stop: hold.Until}
		if taken = append(taken, span); !hold.Shared {
			written = append(written, span)
		}
	}
	var readers, others []*ask
	for _, a := range w.asks[name] {
		if a.reads {
			readers = append(readers, a)
			continue
		}
		others = append(others, a)
		written = append(written, history.Span{Start: a.from, Stop: a.until})
	}
	w.judgeVacancies(name, taken, others)
	w.judgeVacancies(name, written, readers)
}

// judgeVacancies looks for a long time outside of the spans in which one of the callers waited all the time.
func (w *world) judgeVacancies(name string, spans []history.Span, asks []*ask) {
	slices.SortStableFunc(spans, func(a, b history.Span) int { return cmp.Compare(a.Start, b.Start) })
	free := w.plan.Heal + w.plan.recovery()
	gap := func(until time.Duration) {
		from := free
		for _, a := range asks {
			waited := min(a.until, until) - max(a.from, from)
			// A request may meet a lease that its holder does not know of, because the reply was lost.
			// Then a process that only polls waits for another interval.
			polling := 8*time.Second + a.p.plan.Poll
			if waited > max(longestVacancy(&w.plan, name), polling) {
				w.violate(Progress, "%q: from %v to %v %s waits and nobody keeps it from the lock", name, max(a.from, from), min(a.until, until),
					a.p.name)
				return
			}
		}
	}
	for _, s := range spans {
		if s.Start > free {
			gap(s.Start)
		}
		free = max(free, s.Stop)
	}
	if w.plan.Duration > free {
		gap(w.plan.Duration)
	}
}
