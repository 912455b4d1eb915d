package waitqueue

import (
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// The times of a stream, unless its [Settings] differ.
const (
	// FirstRetry is the backoff after the first failure. It doubles with each further one, up to LongestRetry.
	FirstRetry = 100 * time.Millisecond
	// LongestRetry is the longest backoff of a stream whose failures cost a server something.
	LongestRetry = 30 * time.Second
	// Stable is how long a stream must last for the backoff to begin again after its failure.
	Stable = 10 * time.Second
	// Linger is how long a stream stays open after its last watch has ended. Where waiters of one process follow
	// each other, the next one finds it open.
	Linger = 5 * time.Second
	// LongestBlind is how long a backoff may be without the waiters being notified that nothing wakes them.
	LongestBlind = time.Second
	// EarlyLife is how long a wake-up is kept that comes before the watch that it is for, and EarlyMost how many
	// are kept.
	EarlyLife = time.Second
	EarlyMost = 1000
)

// Settings are the times of a stream. Those that are 0 have their defaults. With a negative Linger a stream is closed at once.
type Settings struct {
	LongestRetry, Linger, LongestBlind time.Duration
	// Random returns a duration from 0 up to d, excluding d, which is more than 0. Clients of a server that
	// recovers then do not open their streams together.
	Random func(d time.Duration) time.Duration
}

// Stream is the life of a stream of wake-ups: it is open while there are watches and for a moment after that, and is
// opened again after a failure. Init must be called first.
//
// Whoever drives it adds and removes watches, and does what Next says, one thing at a time: so there is one stream at
// a time, and no goroutine at all without watches. The calls that its methods return are made in their order,
// without a mutex that the driver of the stream holds.
type Stream[W comparable] struct {
	settings Settings
	watches  Watches[W]
	phase    phase
	closed   bool

	idleSince time.Duration // when the last watch ended
	opened    time.Duration // when the stream was opened
	since     time.Duration // since when no event was missed
	retryAt   time.Duration // when the backoff ends
	failures  int           // in a row
	blind     bool          // the stream has failed and was not opened since, or will not be for a while: the waiters were notified

	early   map[Key]early
	dropped time.Duration // when a wake-up was not kept last
}

// phase is where a stream is in its life.
type phase uint8

const (
	absent  phase = iota // nobody drives it
	opening              // it is to be opened, or is being opened
	open
	closing // it is not needed, and is being closed
	resting // it has failed
)

// early is a wake-up that came before the watch that it is for.
type early struct{ at, after time.Duration }

// Call is a wake-up that is due.
type Call[W comparable] struct {
	Watch W
	Up    driver.Wakeup
}

// Step is what whoever drives a stream does next.
type Step uint8

// The steps.
const (
	Open  Step = iota // open the stream, then call Opened or Failed
	Read              // wait for events, for a moment; then call Event for each, or Failed
	Close             // close the stream, then call Closed
	Rest              // wait until the time that Next returns, or until the stream is shut
	Done              // nothing more: Add says when to begin again
)

// Init sets the stream up.
func (s *Stream[W]) Init(settings Settings) {
	if settings.LongestRetry == 0 {
		settings.LongestRetry = LongestRetry
	}
	if settings.Linger == 0 {
		settings.Linger = Linger
	}
	if settings.LongestBlind == 0 {
		settings.LongestBlind = LongestBlind
	}
	s.settings = settings
}

// Add adds a watch. begin says that nobody drives the stream: somebody must begin to.
func (s *Stream[W]) Add(now time.Duration, key Key, w W) (calls []Call[W], begin bool) {
	if s.closed {
		return nil, false
	}
	s.watches.Add(key, w)
	switch {
	case s.phase == open:
		s.blind = false
		calls = append(calls, Call[W]{w, driver.Wakeup{Kind: driver.WakingBegan, Ago: now - s.keptSince(now, key)}})
	case s.blind:
		calls = append(calls, Call[W]{w, driver.Wakeup{Kind: driver.WakingEnded}})
	}
	if e, came := s.early[key]; came && now-e.at <= EarlyLife {
		calls = append(calls, Call[W]{w, driver.Wakeup{After: e.after, Ago: now - e.at}})
	}
	if begin = s.phase == absent; begin {
		s.phase = opening
	}
	return calls, begin
}

// keptSince returns since when no event for a key is lost to a watch that begins now.
func (s *Stream[W]) keptSince(now time.Duration, key Key) time.Duration {
	if key.Waiter == "" {
		return now
	}
	return max(s.since, s.dropped, now-EarlyLife)
}

// Remove removes a watch.
func (s *Stream[W]) Remove(now time.Duration, key Key, w W) {
	if s.watches.Remove(key, w) && s.watches.Empty() {
		s.idleSince = now
	}
}

// Watched reports whether there is a watch for a key.
func (s *Stream[W]) Watched(key Key) bool { return len(s.watches.For(key)) > 0 }

// Watches lists all watches.
func (s *Stream[W]) Watches() (all []W) {
	for _, w := range s.watches.All {
		all = append(all, w)
	}
	return all
}

// Usable reports whether the stream is open, or has not failed to be opened.
func (s *Stream[W]) Usable() bool { return !s.blind }

// Since returns since when no event was missed, if the stream is open.
func (s *Stream[W]) Since() (since time.Duration, isOpen bool) { return s.since, s.phase == open }

// Driven reports whether somebody drives the stream.
func (s *Stream[W]) Driven() bool { return s.phase != absent }

// Shut ends all watches. The stream is closed as soon as Next says so, and never opened again.
func (s *Stream[W]) Shut() {
	s.closed = true
	s.watches.Clear()
	clear(s.early)
}

// idle reports whether nobody has needed the stream for a while.
func (s *Stream[W]) idle(now time.Duration) bool {
	return s.closed || s.watches.Empty() && now-s.idleSince > s.settings.Linger
}

// Next returns what to do now. For Rest, until is when it is over at the latest.
//
// After a failure the backoff always passes, also without watches, so that frequent watches do not bypass it.
func (s *Stream[W]) Next(now time.Duration) (do Step, until time.Duration) {
	if s.phase == resting && !s.closed {
		if now < s.retryAt {
			return Rest, s.retryAt
		}
		s.phase = opening
	}
	switch {
	case s.phase == open && !s.idle(now):
		return Read, 0
	case s.phase == open, s.phase == closing:
		s.phase = closing
		return Close, 0
	case s.phase == opening && !s.idle(now):
		return Open, 0
	}
	// It stays blind: a request that was sent meanwhile counts as one that nothing wakes, until the stream is open again.
	s.phase, s.failures = absent, 0
	return Done, 0
}

// Opened notes that the stream was opened. Whatever happened before may have been missed.
func (s *Stream[W]) Opened(now time.Duration) []Call[W] {
	s.phase, s.opened = open, now
	s.blind = s.blind && s.idle(now) // then it is closed at once
	return s.Gap(now)
}

// Gap notes that events may have been missed, and none from now on.
func (s *Stream[W]) Gap(now time.Duration) []Call[W] {
	if s.phase != open {
		return nil
	}
	s.since = now
	return s.all(driver.WakingBegan)
}

// all makes a call for each watch.
func (s *Stream[W]) all(kind driver.WakeupKind) (calls []Call[W]) {
	for _, w := range s.watches.All {
		calls = append(calls, Call[W]{w, driver.Wakeup{Kind: kind}})
	}
	return calls
}

// Event notes that the lock of a key may be free. after is how long its waiter lets others go first.
func (s *Stream[W]) Event(now time.Duration, key Key, after time.Duration) (calls []Call[W]) {
	for _, w := range s.watches.For(key) {
		calls = append(calls, Call[W]{w, driver.Wakeup{After: after}})
	}
	if len(calls) == 0 && key.Waiter != "" && !s.closed { // a request of the waiter may be refused at this moment
		s.keep(now, key, after)
	}
	return calls
}

func (s *Stream[W]) keep(now time.Duration, key Key, after time.Duration) {
	if s.early == nil {
		s.early = map[Key]early{}
	}
	if len(s.early) >= EarlyMost {
		maps.DeleteFunc(s.early, func(_ Key, e early) bool { return now-e.at > EarlyLife })
	}
	if _, there := s.early[key]; there || len(s.early) < EarlyMost {
		s.early[key] = early{now, after}
	} else {
		s.dropped = now
	}
}

// Failed notes that the stream could not be opened, or has ended by itself. It is closed by now. Next says when it
// is opened again. For a failure that a retry is unlikely to mend, the backoff is at least about least.
func (s *Stream[W]) Failed(now, least time.Duration) []Call[W] {
	wasOpen := s.phase == open
	if wasOpen && now-s.opened >= Stable {
		s.failures = 0
	}
	backoff := max(retry.Delay(s.failures, FirstRetry, s.settings.LongestRetry), least)
	backoff = backoff/2 + s.settings.Random(backoff/2)
	s.failures++
	s.phase, s.retryAt = resting, now+backoff
	if s.blind || wasOpen && backoff <= s.settings.LongestBlind {
		return nil
	}
	s.blind = true
	return s.all(driver.WakingEnded)
}

// Closed notes that the stream, which was not needed, is closed. If a watch has come meanwhile, it is opened again.
func (s *Stream[W]) Closed() { s.phase = opening }
