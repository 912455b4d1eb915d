package engine

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/settings"
)

// A lock that has had one holder for long will probably keep it for long: a leader leads for days,
// and a job takes about as long as it took before. So a waiter that nothing wakes polls in
// proportion to the time for which it has seen the present holder. It notices a release late by at
// most an eighth of the time that it has waited for this holder, but for the least interval.
const (
	// pollShare is that proportion.
	pollShare = 8
	// maxPollGrowth is how much longer than the default the interval becomes.
	maxPollGrowth = 3
	// minPollPart is how much shorter than the default the interval is for a lock that changes
	// hands often.
	minPollPart = 2
)

// pollInterval is how long to wait, without jitter, before the next read of a lock that has had
// the same holder for heldFor, as far as this waiter has seen. An interval that the user has set
// stays as it is. While a Watcher wakes waiters, polls are only a safety net.
func pollInterval(s settings.Settings, watching, broken bool, heldFor time.Duration) time.Duration {
	least := s.Poll / minPollPart
	switch {
	case watching:
		return s.WatchedPoll
	case s.PollSet:
		return s.Poll
	case broken: // the lease ends within one TTL
		return least
	}
	return min(max(heldFor/pollShare, least), maxPollGrowth*s.Poll)
}
