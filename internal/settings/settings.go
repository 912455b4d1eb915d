// Package settings resolves the options of a lock: it applies defaults and checks the result
// against the backend's limits.
package settings

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Optional is a duration that an option may have set. If set, it must be positive: a forgotten or
// miscomputed zero is an error, not a default.
type Optional struct {
	time.Duration
	Set bool
}

// Given returns a duration that an option has set.
func Given(d time.Duration) Optional { return Optional{d, true} }

// String returns the duration as people write it.
func (o Optional) String() string { return driver.FormatDuration(o.Duration) }

// Or returns the duration if it was set, and else d. It shortens very long durations, so that sums
// do not overflow.
func (o Optional) Or(d time.Duration) time.Duration {
	if o.Set {
		return min(o.Duration, driver.MaxTTL)
	}
	return d
}

// Config has the options of a lock as they were given. Resolve makes Settings of it.
type Config struct {
	TTL, Grace, RenewEvery, RequestTimeout, Poll Optional
	Slots                                        *int
	Shared                                       bool
	Owner                                        *string
	Data                                         []byte
	Overrun                                      func(event.Event)
	Observers                                    []*event.Observer
}

// Leases has the options of a LeaseManager.
type Leases struct {
	Lock     Config
	Parallel int
	Func     func(ctx context.Context, name string) error
	NilFunc  bool // an option set it to nil
	Restart  Backoff
}

// Partitions has the options of Partitions.
type Partitions struct {
	Lock           Config
	RebalanceEvery Optional
	Restart        Backoff
}

// Backoff is a growing delay between attempts: about Initial at first, doubling up to Max.
type Backoff struct{ Initial, Max time.Duration }

// Check returns an error if the backoff is invalid.
func (b Backoff) Check() error {
	if b.Initial <= 0 || b.Max < b.Initial {
		return driver.Invalid("Backoff", driver.FormatDuration(b.Initial)+" to "+driver.FormatDuration(b.Max),
			"more than 0, and Max at least Initial")
	}
	return nil
}

// Settings are a lock's options after defaults and checks.
type Settings struct {
	timing.Timing
	Poll        time.Duration // between the attempts of a waiter that nothing wakes
	WatchedPoll time.Duration // the same, while the backend's Waker wakes waiters
	PollSet     bool          // by an option: else the interval adapts to how the lock has behaved
	Slots       int
	Mode        driver.Mode
	Owner       string
	Data        []byte
	Overrun     func(event.Event)
	Observers   []*event.Observer
	Role        telemetry.Role // set by runners and Partitions
}

const (
	defaultTTL  = 30 * time.Second
	defaultPoll = 5 * time.Second
	// maxRequestTimeout bounds the default only.
	maxRequestTimeout = 10 * time.Second
	// watchedPoll is only a safety net: releases wake the waiter, and so does the end of the
	// holder's time.
	watchedPoll = 20 * time.Second
)

// Resolve applies defaults and checks all options together.
func (c Config) Resolve(l driver.Limits) (Settings, error) {
	var s Settings
	if slices.Contains(c.Observers, nil) {
		return s, driver.Invalid("observer", "nil", "a function")
	}
	s.TTL = ClampTTL(defaultTTL, l)
	if c.TTL.Set {
		s.TTL = c.TTL.Duration
	}
	if err := driver.ValidateTTL(s.TTL, l); err != nil {
		return s, err
	}
	s.Grace = c.Grace.Or(s.TTL / 6)
	s.RenewEvery = c.RenewEvery.Or(s.TTL / 3)
	s.RequestTimeout = c.RequestTimeout.Or(min(s.Grace*6/10, maxRequestTimeout))
	s.Poll, s.PollSet = c.Poll.Or(defaultPoll), c.Poll.Set
	s.WatchedPoll = c.Poll.Or(watchedPoll)
	if !c.Poll.Set && l.Poll > 0 {
		s.Poll, s.WatchedPoll = l.Poll, max(l.Poll, watchedPoll)
	}
	s.Slots, s.Data, s.Overrun, s.Observers = 1, c.Data, c.Overrun, c.Observers
	if c.Slots != nil {
		s.Slots = *c.Slots
	}
	if c.Shared {
		s.Mode = driver.Shared
	}
	if c.Owner != nil { // a Client has set the default
		s.Owner = *c.Owner
	}
	return s, s.check(l)
}

func (s Settings) check(l driver.Limits) error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Grace", s.Grace}, {"RenewEvery", s.RenewEvery}, {"RequestTimeout", s.RequestTimeout}, {"PollInterval", s.Poll}} {
		if f.d <= 0 {
			return driver.Invalid(f.name, driver.FormatDuration(f.d), "more than 0")
		}
	}
	if s.Slots < 1 || s.Slots > maxSlots {
		return driver.Invalid("Slots", strconv.Itoa(s.Slots), fmt.Sprintf("from 1 to %d", maxSlots))
	}
	if s.Slots > 1 && s.Mode == driver.Shared {
		return driver.Invalid("Slots", strconv.Itoa(s.Slots), "1 for a shared lock, which any number of holders have")
	}
	// Promise 2: the grace covers the drift of the clocks.
	if drift := s.TTL / timing.DriftPart; s.Grace < drift {
		return driver.Invalid("Grace", driver.FormatDuration(s.Grace), fmt.Sprintf("at least %s, the clock drift allowed for in a TTL of %s",
			driver.FormatDuration(drift), driver.FormatDuration(s.TTL)))
	}
	if s.Grace >= s.TTL {
		return driver.Invalid("Grace", driver.FormatDuration(s.Grace), "less than the TTL of "+driver.FormatDuration(s.TTL))
	}
	if s.RequestTimeout >= s.Grace {
		return driver.Invalid("RequestTimeout", driver.FormatDuration(s.RequestTimeout), "less than the grace of "+driver.FormatDuration(s.Grace))
	}
	if room := s.TTL - s.Grace - s.RequestTimeout; s.RenewEvery > room {
		return driver.Invalid("RenewEvery", driver.FormatDuration(s.RenewEvery), fmt.Sprintf(
			"at most %s, so that one whole attempt fits before the loss (TTL %s less grace %s less request timeout %s)",
			driver.FormatDuration(room), driver.FormatDuration(s.TTL), driver.FormatDuration(s.Grace), driver.FormatDuration(s.RequestTimeout)))
	}
	// Name and ID are not known yet; the rest of the request is. Whether the backend knows the mode is up to CheckMode.
	return driver.Request{Name: "x", ID: driver.NewLeaseID("x"), Owner: s.Owner, TTL: s.TTL, Data: s.Data, Mode: s.Mode}.
		Validate(driver.Info{Limits: l, Modes: driver.Modes{Shared: true}})
}

// CheckMode checks that the backend grants locks in this mode.
func (s Settings) CheckMode(info driver.Info) error {
	if info.Modes.Has(s.Mode) {
		return nil
	}
	return driver.Invalid("Mode", s.Mode.String(), info.Modes.String()+" on "+info.Backend+", without WithShared")
}

// OnlyExclusive refuses the option for shared locks where it has no meaning.
func (s Settings) OnlyExclusive(what string) error {
	if s.Mode == driver.Exclusive {
		return nil
	}
	return driver.Invalid("Mode", s.Mode.String(), driver.Exclusive.String()+" for "+what)
}

// ClampTTL moves a default TTL into the backend's range. A TTL that a user has set is not
// changed.
func ClampTTL(d time.Duration, l driver.Limits) time.Duration {
	if l.MaxTTL > 0 {
		d = min(d, l.MaxTTL)
	}
	d = max(d, l.MinTTL)
	if l.TTLStep > 0 {
		d -= d % l.TTLStep
	}
	return d
}

// maxSlots bounds WithSlots: a waiter observes every slot.
const maxSlots = 1000

// WithoutSlots returns the Config for one holder of each name, whatever the Client's default.
func (c Config) WithoutSlots() Config {
	c.Slots = nil
	return c
}

// ErrNilOption is the error for an option that is nil.
var ErrNilOption = driver.Invalid("option", "nil", "an option with a value")
