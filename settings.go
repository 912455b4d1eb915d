package holdfast

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

// span is a duration that may have been given; one that was given must be
// positive, so that a forgotten or miscomputed zero is an error, not a default.
type span struct {
	time.Duration
	given bool
}

func given(d time.Duration) span { return span{d, true} }

// String is how people write it.
func (s span) String() string { return text.Duration(s.Duration) }

// or returns what was given, or else d. Much is as good as for ever.
func (s span) or(d time.Duration) time.Duration {
	if s.given {
		return min(s.Duration, driver.MaxTTL)
	}
	return d
}

// lockConfig is what options say; settings is what holds after the defaults.
type lockConfig struct {
	ttl, grace, renewEvery, tryTimeout, poll span
	slots                                    *int
	owner                                    *string
	data                                     []byte
	overrun                                  func(Event)
}

// settings are a lock's options after defaults and checks.
type settings struct {
	timing
	poll, watchedPoll time.Duration
	slots             int
	owner             string
	data              []byte
	overrun           func(Event)
}

const (
	defaultTTL  = 30 * time.Second
	defaultPoll = 5 * time.Second
	// maxTryTimeout bounds the default only: an answer that takes longer does not come.
	maxTryTimeout = 10 * time.Second
	// watchedPoll is only a safety net: releases wake the waiter, and it wakes by
	// itself when the holder's time ends.
	watchedPoll = 15 * time.Second
)

// settle fills in defaults and checks all options together.
func (c lockConfig) settle(l driver.Limits) (settings, error) {
	var s settings
	s.ttl = clampTTL(defaultTTL, l)
	if c.ttl.given {
		s.ttl = c.ttl.Duration
	}
	if err := driver.ValidateTTL(s.ttl, l); err != nil {
		return s, err
	}
	s.grace = c.grace.or(s.ttl / 6)
	s.renewEvery = c.renewEvery.or(s.ttl / 3)
	s.tryTimeout = c.tryTimeout.or(min(s.grace*6/10, maxTryTimeout))
	s.poll = c.poll.or(defaultPoll)
	s.watchedPoll = c.poll.or(watchedPoll)
	if !c.poll.given && l.Poll > 0 {
		s.poll, s.watchedPoll = l.Poll, max(l.Poll, watchedPoll)
	}
	s.slots, s.data, s.overrun = 1, c.data, c.overrun
	if c.slots != nil {
		s.slots = *c.slots
	}
	if c.owner != nil { // New sees to the default
		s.owner = *c.owner
	}
	return s, s.check(l)
}

func (s settings) check(l driver.Limits) error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Grace", s.grace}, {"RenewEvery", s.renewEvery}, {"TryTimeout", s.tryTimeout}, {"PollInterval", s.poll}} {
		if f.d <= 0 {
			return driver.Invalid(f.name, text.Duration(f.d), "more than 0")
		}
	}
	if s.slots < 1 || s.slots > maxSlots {
		return driver.Invalid("Slots", strconv.Itoa(s.slots), fmt.Sprintf("from 1 to %d", maxSlots))
	}
	if drift := s.ttl / driftPart; s.grace < drift {
		return driver.Invalid("Grace", text.Duration(s.grace), fmt.Sprintf("at least %s, what the clocks may differ by in a TTL of %s", text.Duration(drift), text.Duration(s.ttl)))
	}
	if s.grace >= s.ttl {
		return driver.Invalid("Grace", text.Duration(s.grace), "less than the TTL of "+text.Duration(s.ttl))
	}
	if s.tryTimeout >= s.grace {
		return driver.Invalid("TryTimeout", text.Duration(s.tryTimeout), "less than the grace of "+text.Duration(s.grace))
	}
	if room := s.ttl - s.grace - s.tryTimeout; s.renewEvery > room {
		return driver.Invalid("RenewEvery", text.Duration(s.renewEvery), fmt.Sprintf(
			"at most %s, so that one whole try fits before the loss (TTL %s less grace %s less try timeout %s)",
			text.Duration(room), text.Duration(s.ttl), text.Duration(s.grace), text.Duration(s.tryTimeout)))
	}
	// The name and the ID come later; the rest of the request is known now.
	return driver.Request{Name: "x", ID: NewLeaseID("x"), Owner: s.owner, TTL: s.ttl, Data: s.data}.Validate(l)
}

// clampTTL moves a default TTL, never a user's, into the backend's range.
func clampTTL(d time.Duration, l driver.Limits) time.Duration {
	if l.MaxTTL > 0 {
		d = min(d, l.MaxTTL)
	}
	d = max(d, l.MinTTL)
	if l.TTLStep > 0 {
		d -= d % l.TTLStep
	}
	return d
}
