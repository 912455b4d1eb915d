package worker

// Limit bounds how many calls are under way at once. Retries use at most half of it, so that
// calls that fail repeatedly do not delay the others. A mutex of its owner guards it.
type Limit struct {
	Max int

	used, retrying int
}

// Free returns how much of the limit is left for a first attempt, or for a retry.
func (l *Limit) Free(retry bool) int {
	free := l.Max - l.used
	if retry {
		free = min(free, max(l.Max/2, 1)-l.retrying)
	}
	return free
}

// Retrying reports whether a retry is under way.
func (l *Limit) Retrying() bool { return l.retrying > 0 }

// Take makes a call use part of the limit. A call with a higher weight uses more of it.
func (l *Limit) Take(weight int, retry bool) Use {
	l.add(weight, retry)
	return Use{l, weight, retry}
}

func (l *Limit) add(weight int, retry bool) {
	l.used += weight
	if retry {
		l.retrying += weight
	}
}

// Use is the part of a limit that one call uses.
type Use struct {
	limit  *Limit
	weight int // 0 once it has ended
	retry  bool
}

// End frees the part, once: when the call has returned, or when it should have. It reports
// whether this was the first time.
func (u *Use) End() bool {
	if u.weight == 0 {
		return false
	}
	u.limit.add(-u.weight, u.retry)
	u.weight = 0
	return true
}
