package waiter

import (
	"testing"
	"time"
)

func TestPollInterval(t *testing.T) {
	const poll, watched = 5 * time.Second, 15 * time.Second
	for _, c := range []struct {
		what             string
		watching, broken bool
		set              bool
		heldFor, want    time.Duration
	}{
		{what: "a new holder", want: poll / 2},
		{what: "a holder for 20 s", heldFor: 20 * time.Second, want: poll / 2},
		{what: "a holder for 40 s", heldFor: 40 * time.Second, want: poll},
		{what: "a holder for 80 s", heldFor: 80 * time.Second, want: 2 * poll},
		{what: "a holder for days", heldFor: 100 * time.Hour, want: 3 * poll},
		{what: "a broken lease of a holder for days", heldFor: 100 * time.Hour, broken: true, want: poll / 2},
		{what: "a new holder, watched", watching: true, want: watched},
		{what: "a holder for days, watched", watching: true, heldFor: 100 * time.Hour, want: watched},
		{what: "an interval that the user has set", set: true, heldFor: 100 * time.Hour, want: poll},
		{what: "the same, of a broken lease", set: true, broken: true, want: poll},
		{what: "the same, watched", set: true, watching: true, heldFor: 100 * time.Hour, want: watched},
	} {
		s := Settings{Poll: poll, WatchedPoll: watched, PollSet: c.set}
		if got := s.PollInterval(c.watching, c.broken, c.heldFor); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
