package lockertest

import (
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// clauseLimit is when the context of a clause ends.
	clauseLimit = 5 * time.Minute
	// theClause stands for all of a clause among its calls.
	theClause = "the clause"
	// mostHanging is in how many clauses the driver may hang before the suite gives up, so that all failures
	// are shown before a test binary ends by its own time limit.
	mostHanging = 3
)

// pending is a call that has not returned.
type pending struct {
	method string
	since  time.Time
}

// begin notes a call until its result is called.
func (c *check) begin(method string) (end func()) {
	p := &pending{method, time.Now()}
	c.failing.Lock()
	defer c.failing.Unlock()
	c.calls[p] = struct{}{}
	return func() {
		c.failing.Lock()
		defer c.failing.Unlock()
		delete(c.calls, p)
	}
}

// overdue describes a call that is under way for longer than any may be. No method needs more than ownLimit: if
// its context has a later deadline, the backend answers in these clauses.
func (c *check) overdue() string {
	c.failing.Lock()
	defer c.failing.Unlock()
	patience := c.ownLimit + 2*c.soon
	for p := range c.calls {
		limit := patience
		if p.method == theClause {
			limit += clauseLimit
		}
		if waited := time.Since(p.since); waited > limit {
			return fmt.Sprintf("%s had not returned after %v", p.method, waited.Round(time.Millisecond))
		}
	}
	return ""
}

// await waits until a clause has ended, and returns its failures. A clause whose call never returns fails, and is
// left behind: nothing can end its goroutine.
func (s *suite) await(ck *check) []string {
	tick := time.NewTicker(min(s.soon, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ck.done:
			return ck.failures
		case <-tick.C:
			hangs := ck.overdue()
			if hangs == "" {
				continue
			}
			ck.errorf("%s", hangs)
			s.mu.Lock()
			s.hung++
			s.mu.Unlock()
			ck.failing.Lock()
			defer ck.failing.Unlock()
			// The test's output may never be shown if closing the Locker hangs, too.
			fmt.Fprintf(os.Stderr, "lockertest: %s: %s\n", ck.clause, hangs)
			return slices.Clone(ck.failures)
		}
	}
}

// hanging reports whether the driver hung so often that the other clauses are left out.
func (s *suite) hanging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung >= mostHanging
}

// leaveOut notes why a clause was not checked.
func (s *suite) leaveOut(clause string, why ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftOut.add(clause, why...)
}

// inPartOnly notes why the rest of the clause is not checked.
func (c *check) inPartOnly(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inPart.add(c.clause, why)
}
