package dispatch

// limit bounds how many calls are under way at once. Retries use at most half of it, so that
// calls that fail repeatedly do not delay the others. A mutex of its owner guards it.
type limit struct {
	max int

	used, retrying int
	retried        bool // the latest call was for retries
}

// free returns how much of the limit is left for a first attempt, or for a retry.
func (l *limit) free(retry bool) int {
	free := l.max - l.used
	if retry {
		free = min(free, max(l.max/2, 1)-l.retrying)
	}
	return free
}

// take makes a call use part of the limit. A call with a higher weight uses more of it.
func (l *limit) take(weight int, retry bool) use {
	l.add(weight, retry)
	l.retried = retry
	return use{l, weight, retry}
}

func (l *limit) add(weight int, retry bool) {
	l.used += weight
	if retry {
		l.retrying += weight
	}
}

// use is the part of a limit that one call uses.
type use struct {
	limit  *limit
	weight int // 0 once it has ended
	retry  bool
}

// end frees the part, once: when the call has returned, or when it should have. It reports
// whether this was the first time.
func (u *use) end() bool {
	if u.weight == 0 {
		return false
	}
	u.limit.add(-u.weight, u.retry)
	u.weight = 0
	return true
}
