package history

// checkOverlaps looks for two holds that were live at the same time. A hold was live at From and
// at Until, so sharing one moment is a violation.
func (c *checker) checkOverlaps() {
	var open []Hold
	for _, b := range c.h.Holds { // sorted by From
		still := open[:0]
		for _, a := range open {
			if a.Until < b.From {
				continue
			}
			if still = append(still, a); !a.Shared || !b.Shared {
				c.checkPair(a, b)
			}
		}
		open = append(still, b)
	}
}

func (c *checker) checkPair(a, b Hold) {
	until := min(a.Until, b.Until)
	errNilFor := min(a.ErrNil, b.ErrNil) - b.From
	switch {
	case c.skewed(a, until) || c.skewed(b, until):
		c.r.Excused[NoOverlap]++
		return
	case errNilFor >= 0:
		c.violation(NoErrOverlap, b.From, "Hold.Err is nil in %v and %v for %v", a, b, errNilFor)
	}
	if c.paused(a, until) || c.paused(b, until) {
		c.r.Excused[NoOverlap]++
		return
	}
	c.violation(NoOverlap, b.From, "the contexts of %v and %v are both live for %v", a, b, until-b.From)
}

// checkTokens looks for a grant whose token is not greater than all earlier ones.
//
// Where holds exclude each other, the order in which they were first seen live is the order of
// the grants. Between two readers, and while a clock is skewed or a holder is paused, that order is
// not certain: then a grant is certainly later only if its client began to wait after the other hold
// was live.
func (c *checker) checkTokens() {
	seen := map[uint64]Hold{}
	var highest uint64
	for i, b := range c.h.Holds { // sorted by From
		if a, ok := seen[b.Token]; ok {
			c.violation(RisingTokens, b.From, "%v and %v have the same token", a, b)
		} else if b.Token < highest {
			c.checkRegression(c.h.Holds[:i], b)
		}
		seen[b.Token], highest = b, max(highest, b.Token)
	}
}

// checkRegression looks for an earlier grant with a higher token than b.
func (c *checker) checkRegression(earlier []Hold, b Hold) {
	for _, a := range earlier {
		if b.Token < a.Token && (a.From < b.Asked || (!a.Shared || !b.Shared) && !c.disturbed(a, b)) {
			c.violation(RisingTokens, b.From, "%v was granted after %v", b, a)
			return
		}
	}
	c.r.Excused[RisingTokens]++
}

func (c *checker) disturbed(a, b Hold) bool {
	return c.skewed(a, a.From) || c.skewed(b, b.From) || c.paused(a, a.From) || c.paused(b, b.From)
}

// checkLostUpdates looks for a value of the counter that was overwritten by a value computed from
// an older one. Only the lock protects the counter, so a writer that was paused may overwrite
// updates, and its own update may be overwritten.
func (c *checker) checkLostUpdates() {
	holds := map[uint64]Hold{}
	for _, h := range c.h.Holds {
		holds[h.Token] = h
	}
	excused := func(set Line) bool {
		h, ok := holds[set.Token]
		if !ok { // killed before it could record its hold
			h = Hold{Process: set.Process, Asked: set.At, From: set.At}
		}
		return c.paused(h, set.At) || c.skewed(h, set.At)
	}
	var last Line
	for _, set := range c.h.Sets { // in the order of the store
		switch {
		case set.Base == set.Found:
		case excused(set) || excused(last):
			c.r.Excused[NoLostUpdate]++
		default:
			c.violation(NoLostUpdate, set.At, "client %d with token %d wrote %d, computed from %d, over %d, which client %d had written with "+
				"token %d",
				set.Client, set.Token, set.Value, set.Base, set.Found, last.Client, last.Token)
		}
		last = set
	}
}
