package history

// checkEarlyGrants looks for a grant at a moment when the context of another hold was live, unless both are of readers.
func (c *checker) checkEarlyGrants() {
	for _, g := range c.h.Grants {
		for _, h := range c.h.Holds { // sorted by From
			if h.From > g.At {
				break
			}
			switch {
			case h.Until < g.At || h.Token == g.Token || h.Shared && g.Shared:
			case c.paused(h, g.At) || c.skewed(h, g.At):
				c.r.Excused[NoEarlyGrant]++
			default:
				c.violation(NoEarlyGrant, g.At, "the backend granted token %d while the context of %v was live, for %v more", g.Token, h, h.Until-g.At)
			}
		}
	}
}

// checkOrder looks for a waiter that was served before one of the same process that had asked
// earlier and was still waiting.
func (c *checker) checkOrder() {
	served := map[key]Hold{} // by process and time of asking
	for _, h := range c.h.Holds {
		served[key{h.Process, uint64(h.Asked)}] = h
	}
	for i, late := range c.h.Waits { // sorted by Asked
		h, ok := served[key{late.Process, uint64(late.Asked)}]
		if !ok || h.From != late.Until {
			continue
		}
		for _, early := range c.h.Waits[:i] {
			if early.Process == late.Process && early.Asked < late.Asked && early.Until > late.Until {
				c.violation(InOrder, h.From, "%v asked at %v and was served before a waiter of the same process that had asked at %v", h, late.Asked,
					early.Asked)
			}
		}
	}
}
