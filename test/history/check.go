package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rule is a property that must hold.
type Rule string

// The rules that Check checks.
const (
	// NoOverlap: no two contexts are live at the same time, unless a holder was paused or judged
	// by a skewed clock.
	NoOverlap Rule = "overlaps"
	// NoErrOverlap: Hold.Err is not nil in two holders at the same time, paused or not, unless a
	// clock is skewed.
	NoErrOverlap Rule = "overlaps by Hold.Err"
	// RisingTokens: each grant's token is greater than those of all earlier grants.
	RisingTokens Rule = "token regressions"
	// NoStaleWrite: no write with a lower token is accepted after one with a higher token.
	NoStaleWrite Rule = "accepted stale writes"
	// NoLostUpdate: no update of the counter is lost, unless a holder was paused or judged by a
	// skewed clock.
	NoLostUpdate Rule = "lost updates"
	// Linearizable: each fenced register is linearizable.
	Linearizable Rule = "registers not linearizable"
	// NoEarlyGrant: the backend grants the lock only after the contexts of all earlier holds have
	// ended, unless a holder was paused or judged by a skewed clock.
	NoEarlyGrant Rule = "grants before the loss"
	// InOrder: the waiters of one process that queue are served first-in-first-out.
	InOrder Rule = "waiters out of order"
	// NoLeak: no goroutine is left when a process ends.
	NoLeak Rule = "leaked goroutines"
)

// Rules are all rules, in the order of reports.
var Rules = []Rule{NoOverlap, NoErrOverlap, RisingTokens, NoStaleWrite, NoLostUpdate, Linearizable, NoEarlyGrant, InOrder, NoLeak}

// Violation is one case in which a rule did not hold.
type Violation struct {
	Rule Rule
	At   time.Duration
	Text string
}

// Report is the result of Check.
type Report struct {
	// Grants is how often the lock was granted, Holders to how many clients.
	Grants, Holders int
	// Vacancy is the longest time without a live context, between the first request for the lock
	// and the last live context.
	Vacancy time.Duration
	// Updates counts the updates of the counter, Operations the operations on fenced registers,
	// Refused and Unknown those with that outcome.
	Updates, Operations, Refused, Unknown int
	// Faults counts the injected faults by name. Stalls counts how often a process did not get to
	// run.
	Faults map[string]int
	Stalls int
	// Excused counts the cases that the promises exclude: the holder was paused or judged by a
	// skewed clock.
	Excused map[Rule]int
	// Violations are sorted by rule and time.
	Violations []Violation
}

// Count returns the number of violations of a rule.
func (r *Report) Count(rule Rule) int {
	n := 0
	for _, v := range r.Violations {
		if v.Rule == rule {
			n++
		}
	}
	return n
}

// Err returns nil if every rule held, and otherwise an error that lists the violations.
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

// Check checks a history against all rules. more are checks that need other modules, such as that of
// Linearizable.
func Check(h *History, more ...func(*History) []Violation) *Report {
	r := &Report{Grants: len(h.Holds), Updates: len(h.Sets), Faults: map[string]int{}, Excused: map[Rule]int{}}
	c := &checker{h, r}
	c.collectStatistics()
	c.checkOverlaps()
	c.checkTokens()
	c.checkStaleWrites()
	c.checkLostUpdates()
	c.checkEarlyGrants()
	c.checkOrder()
	c.checkLeaks()
	for _, check := range more {
		r.Violations = append(r.Violations, check(h)...)
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(slices.Index(Rules, a.Rule), slices.Index(Rules, b.Rule)), cmp.Compare(a.At, b.At))
	})
	return r
}

type checker struct {
	h *History
	r *Report
}

func (c *checker) violation(rule Rule, at time.Duration, format string, args ...any) {
	c.r.Violations = append(c.r.Violations, Violation{rule, at, fmt.Sprintf(format, args...)})
}

// paused and skewed cover the time from the request for the lock, since a process may be stopped
// between the arrival of an answer and reading it.
func (c *checker) paused(h Hold, until time.Duration) bool {
	return anyOverlaps(c.h.Pauses, h.Process, h.Asked, until)
}

func (c *checker) skewed(h Hold, until time.Duration) bool {
	return anyOverlaps(c.h.Skews, h.Process, h.Asked, until)
}

func anyOverlaps(spans []Span, process int, from, until time.Duration) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.intersects(process, from, until) })
}

func (c *checker) collectStatistics() {
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
	for _, h := range c.h.Holds { // sorted by From
		c.r.Vacancy = max(c.r.Vacancy, h.From-covered)
		covered = max(covered, h.Until)
	}
}

func (c *checker) checkLeaks() {
	for _, l := range c.h.Exits {
		if l.Value != 0 {
			c.violation(NoLeak, l.At, "client %d left %d goroutines: %s", l.Client, l.Value, l.Note)
		}
	}
}
