package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rule is something that must hold.
type Rule string

// The rules that Check knows.
const (
	// NoOverlap: no two contexts are live at once, of holders that were neither
	// paused nor judged by a skewed clock.
	NoOverlap Rule = "overlaps"
	// NoSureOverlap: Hold.Err is not nil in two holders at once, paused or not, while
	// no clock is skewed.
	NoSureOverlap Rule = "overlaps by Hold.Err"
	// Rising: each grant's token is greater than those of all grants before.
	Rising Rule = "token regressions"
	// NoStale: no write with a lower token is accepted after one with a higher.
	NoStale Rule = "accepted stale writes"
	// NoLost: no update of the counter is lost between holders that were neither
	// paused nor judged by a skewed clock.
	NoLost Rule = "lost updates"
	// Linearizable: each fenced register behaves like one.
	Linearizable Rule = "registers not linearizable"
	// NoLeak: no goroutine is left over at a process's end.
	NoLeak Rule = "leaked goroutines"
)

// Rules are all of them, in the order in which they are told.
var Rules = []Rule{NoOverlap, NoSureOverlap, Rising, NoStale, NoLost, Linearizable, NoLeak}

// Violation is one breach of a rule.
type Violation struct {
	Rule Rule
	At   time.Duration
	Text string
}

// Report is what Check found.
type Report struct {
	// Grants is how often the lock was granted, Holders to how many clients.
	Grants, Holders int
	// Vacancy is the longest time without a live context, between the first wish for
	// the lock and the last live context.
	Vacancy time.Duration
	// Updates counts those of the counter, Operations those on the fenced registers,
	// Refused and Unknown those among them with that outcome.
	Updates, Operations, Refused, Unknown int
	// Faults counts what was done to the system, by its name; Stalls the times that
	// a process did not get to run.
	Faults map[string]int
	Stalls int
	// Excused counts breaches by those of whom the promise does not speak.
	Excused map[Rule]int
	// Violations are the breaches, by rule and time.
	Violations []Violation
}

// Count is how many breaches of a rule there are.
func (r *Report) Count(rule Rule) int {
	n := 0
	for _, v := range r.Violations {
		if v.Rule == rule {
			n++
		}
	}
	return n
}

// Err is nil if every rule held, and else an error that tells each breach.
func (r *Report) Err() error {
	if len(r.Violations) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations", len(r.Violations))
	const most = 20
	for i, v := range r.Violations {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(r.Violations)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s: at %v: %s", v.Rule, v.At, v.Text)
	}
	return fmt.Errorf("history: %s", b.String())
}

// Check holds a history against all rules. The check for linearizability may take up
// to limit for each register; not to know by then is a violation, too.
func Check(h *History, limit time.Duration) *Report {
	r := &Report{Grants: len(h.Holds), Updates: len(h.Sets), Faults: map[string]int{}, Excused: map[Rule]int{}}
	c := &checker{h, r}
	c.statistics()
	c.overlaps()
	c.tokens()
	c.staleWrites()
	c.lostUpdates()
	c.registers(limit)
	c.leaks()
	slices.SortStableFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(slices.Index(Rules, a.Rule), slices.Index(Rules, b.Rule)), cmp.Compare(a.At, b.At))
	})
	return r
}

type checker struct {
	h *History
	r *Report
}

func (c *checker) breach(rule Rule, at time.Duration, format string, args ...any) {
	c.r.Violations = append(c.r.Violations, Violation{rule, at, fmt.Sprintf(format, args...)})
}

// paused and skewed tell of the time since a hold began to be waited for: a process
// may be stopped between an answer and the moment it reads it.
func (c *checker) paused(h Hold, until time.Duration) bool {
	return touched(c.h.Pauses, h.Process, h.Asked, until)
}

func (c *checker) skewed(h Hold, until time.Duration) bool {
	return touched(c.h.Skews, h.Process, h.Asked, until)
}

func touched(spans []Span, process int, from, until time.Duration) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.touches(process, from, until) })
}

func (c *checker) statistics() {
	holders := map[int]bool{}
	for _, h := range c.h.Holds {
		holders[h.Client] = true
	}
	c.r.Holders = len(holders)
	for _, f := range c.h.Faults {
		c.r.Faults[f.Note]++
	}
	for _, s := range c.h.Pauses {
		if s.Note == stall {
			c.r.Stalls++
		}
	}
	for _, op := range c.h.Operations {
		c.r.Operations++
		switch op.Outcome {
		case Refused:
			c.r.Refused++
		case Unknown:
			c.r.Unknown++
		}
	}
	if len(c.h.Holds) == 0 {
		return
	}
	covered := c.h.Holds[0].Asked
	for _, h := range c.h.Holds {
		covered = min(covered, h.Asked)
	}
	for _, h := range c.h.Holds { // in the order of From
		c.r.Vacancy = max(c.r.Vacancy, h.From-covered)
		covered = max(covered, h.Until)
	}
}

func (c *checker) leaks() {
	for _, l := range c.h.Exits {
		if l.Value != 0 {
			c.breach(NoLeak, l.At, "client %d left %d: %s", l.Client, l.Value, l.Note)
		}
	}
}
