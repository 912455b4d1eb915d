package lockertest

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Outcome is what [Examine] found out about one clause.
type Outcome struct {
	// Clause is its name, such as "renew/extends". What stands before the "/" is its group.
	Clause string
	// Says is the contract's demand.
	Says string
	// Failures say what happened instead.
	Failures []string
	// LeftOut says why the clause was not checked.
	LeftOut []string
}

// closeLimit bounds the closing of all Lockers.
const closeLimit = 10 * time.Second

// attempts is how often a clause is checked that fails only because the store does not answer calls: a server may be out of reach for
// a moment. A clause that is broken is checked once, since most faults do not show each time.
const attempts = 3

// Examine checks a store outside a test, as "holdfast certify" does. open returns another Locker on the store, which nothing else may use;
// Examine closes it. Of cfg it uses TTL, ClockStep, Slack and Secrets. The clauses that need more than calls are left out. It calls report
// for each clause when it has ended, from one goroutine, and at last for those that take the longest: they run meanwhile. The locks of
// many clauses stay held, and all records stay. The error says why the suite could not begin or, if ctx has ended, go on.
func Examine(ctx context.Context, open func(context.Context) (driver.Locker, error), cfg Config, report func(Outcome)) error {
	e := &examination{ctx: ctx, open: open, report: report}
	defer e.close()
	one, err := e.locker()
	if err != nil {
		return err
	}
	two, err := e.locker()
	if err != nil {
		return err
	}
	if e.suite, err = suiteOn(one, two, Config{TTL: cfg.TTL, ClockStep: cfg.ClockStep, Slack: cfg.Slack, Secrets: cfg.Secrets}); err != nil {
		return err
	}
	e.explainLacks()
	for _, alone := range []bool{false, true} {
		e.runAll(alone)
	}
	return ctx.Err()
}

// Clauses returns how many clauses the contract has.
func Clauses() int { return len(clauses()) }

// examination is one call of Examine.
type examination struct {
	*suite
	ctx    context.Context
	open   func(context.Context) (driver.Locker, error)
	report func(Outcome)

	opening sync.Mutex
	opened  []driver.Locker
}

// locker opens a Locker.
func (e *examination) locker() (driver.Locker, error) {
	l, err := e.open(e.ctx)
	if err != nil {
		return nil, err
	}
	e.opening.Lock()
	defer e.opening.Unlock()
	e.opened = append(e.opened, l)
	return l, nil
}

// close closes all Lockers, those that a clause has closed once more.
func (e *examination) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), closeLimit)
	defer cancel()
	e.opening.Lock()
	defer e.opening.Unlock()
	for _, l := range e.opened {
		_ = l.Close(ctx)
	}
}

// explainLacks says in the words of a user what the fields of a Config are for.
func (e *examination) explainLacks() {
	for i, l := range e.lacks {
		switch l.need {
		case canAdvance:
			e.lacks[i].why = "needs a clock that a test can set"
		case canForget:
			e.lacks[i].why = "needs records that are removed behind the driver's back"
		case canStall:
			e.lacks[i].why = "needs a server that is stopped for a while"
		case canFailOver:
			e.lacks[i].why = "needs a server that crashes"
		case canDeny:
			e.lacks[i].why = "needs rights that are taken away for a while"
		case canDamage:
			e.lacks[i].why = "needs a record that is damaged"
		}
	}
}

// runAll runs the clauses that must be alone, or all others. Those that wait run while the next ones do.
func (e *examination) runAll(alone bool) {
	var waiting []func()
	for _, c := range clauses() {
		if c.alone != alone || e.ctx.Err() != nil {
			continue
		}
		found := Outcome{Clause: c.name, Says: c.says, LeftOut: e.lacking(c.needs)}
		if len(found.LeftOut) == 0 && e.hanging() {
			found.Failures = []string{"not checked: the driver has stopped answering"}
		}
		if len(found.LeftOut)+len(found.Failures) > 0 {
			e.report(found)
			continue
		}
		running := e.launch(e.ctx, e.another, c)
		end := func() {
			found.Failures = e.await(running)
			for again := 1; again < attempts && running.onlyUnanswered() && e.ctx.Err() == nil; again++ {
				running = e.launch(e.ctx, e.another, c)
				found.Failures = e.await(running)
			}
			if e.ctx.Err() == nil {
				e.report(found)
			}
		}
		if c.waits {
			waiting = append(waiting, end)
		} else {
			end()
		}
	}
	for _, end := range waiting {
		end()
	}
}

// onlyUnanswered reports whether the clause has failed only because calls were not answered.
func (c *check) onlyUnanswered() bool {
	c.failing.Lock()
	defer c.failing.Unlock()
	return c.unanswered > 0 && c.unanswered == len(c.failures)
}

// another opens a Locker for a clause.
func (e *examination) another(c *check) driver.Locker {
	l, err := e.locker()
	if err != nil {
		c.fatalf("opening another Locker: %v", err)
	}
	return l
}
