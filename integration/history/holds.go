package history

// overlaps looks for two holds that were live at once. A hold's From and Until are
// times at which it was live, so two that share a moment are a breach.
func (c *checker) overlaps() {
	var open []Hold
	for _, b := range c.h.Holds { // in the order of From
		still := open[:0]
		for _, a := range open {
			if a.Until < b.From {
				continue
			}
			still = append(still, a)
			c.overlap(a, b)
		}
		open = append(still, b)
	}
}

func (c *checker) overlap(a, b Hold) {
	together := min(a.Until, b.Until)
	sure := min(a.Sure, b.Sure) - b.From
	switch {
	case c.skewed(a, together) || c.skewed(b, together):
		c.r.Excused[NoOverlap]++
		return
	case sure >= 0:
		c.breach(NoSureOverlap, b.From, "%v and %v both hold for %v", a, b, sure)
	}
	if c.paused(a, together) || c.paused(b, together) {
		c.r.Excused[NoOverlap]++
		return
	}
	c.breach(NoOverlap, b.From, "%v and %v are both live for %v", a, b, together-b.From)
}

// tokens looks for a grant with a token that is not greater than an earlier one's.
//
// Where holds exclude each other, the order in which they were first seen live is
// the order of the grants. Beyond that, while a clock is skewed or a holder was
// paused, only who asked after another was live was certainly granted later.
func (c *checker) tokens() {
	seen := map[uint64]Hold{}
	var highest uint64
	for i, b := range c.h.Holds { // in the order of From
		if a, ok := seen[b.Token]; ok {
			c.breach(Rising, b.From, "%v and %v have one token", a, b)
		} else if b.Token < highest {
			c.regression(c.h.Holds[:i], b)
		}
		seen[b.Token], highest = b, max(highest, b.Token)
	}
}

// regression tells of a grant that has a lower token than one before it.
func (c *checker) regression(earlier []Hold, b Hold) {
	for _, a := range earlier {
		if b.Token < a.Token && (a.From < b.Asked || !c.disturbed(a, b)) {
			c.breach(Rising, b.From, "%v was granted after %v", b, a)
			return
		}
	}
	c.r.Excused[Rising]++
}

func (c *checker) disturbed(a, b Hold) bool {
	return c.skewed(a, a.From) || c.skewed(b, b.From) || c.paused(a, a.From) || c.paused(b, b.From)
}

// lostUpdates looks for a counter's value that was overwritten by one that was not
// made of it. Nothing but the lock protects the counter, so a writer that was paused
// may do so, or fall victim to one.
func (c *checker) lostUpdates() {
	holds := map[uint64]Hold{}
	for _, h := range c.h.Holds {
		holds[h.Token] = h
	}
	excused := func(set Line) bool {
		h, ok := holds[set.Token]
		if !ok { // killed before it could say that it holds
			h = Hold{Process: set.Process, Asked: set.At, From: set.At}
		}
		return c.paused(h, set.At) || c.skewed(h, set.At)
	}
	var last Line
	for _, set := range c.h.Sets { // in the order in which the store took them
		switch {
		case set.Base == set.Found:
		case excused(set) || excused(last):
			c.r.Excused[NoLost]++
		default:
			c.breach(NoLost, set.At, "client %d with token %d made %d of %d, over %d that client %d had written with token %d",
				set.Client, set.Token, set.Value, set.Base, set.Found, last.Client, last.Token)
		}
		last = set
	}
}
