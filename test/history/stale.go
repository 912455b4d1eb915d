package history

import (
	"cmp"
	"slices"
	"time"
)

// checkStaleWrites looks for writes that were accepted although a write with a higher token had
// been accepted, or read, before they began.
func (c *checker) checkStaleWrites() {
	type highest struct {
		token uint64
		by    Operation
	}
	ended := slices.DeleteFunc(slices.Clone(c.h.Operations), func(op Operation) bool { return op.Outcome != OK })
	slices.SortFunc(ended, func(a, b Operation) int { return cmp.Compare(a.End, b.End) })
	seen, next := map[string]highest{}, 0
	for _, op := range c.h.Operations { // sorted by Start
		for ; next < len(ended) && ended[next].End < op.Start; next++ {
			if e := ended[next]; e.Token > seen[e.Key].token {
				seen[e.Key] = highest{e.Token, e}
			}
		}
		if high := seen[op.Key]; op.Op == Write && op.Outcome == OK && op.Token < high.token {
			c.violation(NoStaleWrite, op.Start, "client %d wrote %q with token %d, %v after client %d's %s with token %d",
				op.Client, op.Key, op.Token, (op.Start - high.by.End).Round(time.Microsecond), high.by.Client, high.by.Op, high.token)
		}
	}
}
