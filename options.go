package holdfast

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// ClientOption configures a Client; see New and Open.
type ClientOption interface{ applyClient(*clientConfig) }

// RunnerOption configures a LeaderAwareRunner.
type RunnerOption interface{ applyRunner(*runnerConfig) }

// ManagerOption configures a LeaseManager.
type ManagerOption interface{ applyManager(*managerConfig) }

// Option configures how a lock is taken and kept. Given to New or Open it is the
// default for all locks of the Client; given to Do, Lock, TryLock, a runner or
// a LeaseManager it applies there.
type Option interface {
	ClientOption
	RunnerOption
	ManagerOption
	PartitionsOption
	applyLock(*lockConfig)
}

type lockOption func(*lockConfig)

func (o lockOption) applyLock(c *lockConfig)       { o(c) }
func (o lockOption) applyClient(c *clientConfig)   { o(&c.lock) }
func (o lockOption) applyRunner(c *runnerConfig)   { o(&c.lock) }
func (o lockOption) applyManager(c *managerConfig) { o(&c.lock) }

type clientOption func(*clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

type runnerOption func(*runnerConfig)

func (o runnerOption) applyRunner(c *runnerConfig) { o(c) }

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

type clientConfig struct {
	lock      lockConfig
	logger    *slog.Logger
	observers []func(Event)
	elapsed   func() time.Duration
}

// WithTTL sets how long a lease lasts on the backend's clock unless renewed. The
// default is 30 s, or the backend's limit if that is nearer. A dead holder keeps
// others waiting for up to one TTL; a TTL shorter than the backend's own fail-over
// loses every lease in it.
func WithTTL(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.ttl = given(d) })
}

// WithGrace sets how long before the lease can expire the hold's context ends if
// it was not renewed: the time its work has to stop, and what clock skew
// between the backend's servers may use up. The default is TTL/6.
func WithGrace(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.grace = given(d) })
}

// WithRenewEvery sets the time between renewals. The default is TTL/3.
func WithRenewEvery(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.renewEvery = given(d) })
}

// WithTryTimeout bounds each single backend call. It must be shorter than the
// grace. The default is 60 % of it, at most 10 s.
func WithTryTimeout(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.tryTimeout = given(d) })
}

// WithPollInterval sets how often a waiter asks when nothing else wakes it; each
// wait is jittered by a fifth. The default is the backend's Limits.Poll, or 5 s;
// while the backend's Watcher is at work, 15 s. Where the backend reads in batches, the
// records of all that the Client waits for are read together, and a waiter asks only
// when it may get the lock.
func WithPollInterval(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.poll = given(d) })
}

// WithOwner sets the name that others see as the holder. The default is host/pid.
// It proves nothing and need not be unique.
func WithOwner(owner string) Option {
	return lockOption(func(c *lockConfig) { c.owner = &owner })
}

// WithData stores data with the lock when it is taken. Without it the data of the
// previous holder stays.
func WithData(data []byte) Option {
	data = slices.Clone(data) // the caller may change its own
	return lockOption(func(c *lockConfig) { c.data = data })
}

// WithOverrunHook has fn called, on a goroutine of its own, once for a hold, when a hold has ended
// and its work still runs at the moment another may be granted the lock: the
// function given to Do or the runner has not returned, or Release was not called.
// A program for which that must not be may exit here.
func WithOverrunHook(fn func(Event)) Option {
	return lockOption(func(c *lockConfig) { c.overrun = fn })
}

// WithLogger sets where events are logged; the default is slog.Default. Losses and
// failures are warnings, overruns errors. An election, a step-down, acquiring a lock again
// after its loss, and waiting for half a minute for a hold of this process itself are info;
// what else goes well is debug.
func WithLogger(logger *slog.Logger) ClientOption {
	return clientOption(func(c *clientConfig) { c.logger = logger })
}

// WithElapsed replaces the clock that local deadlines go by. It is for tests: under
// testing/synctest, give a function of the bubble's time, such as
// func() time.Duration { return time.Since(start) }. It must be quick and must not call
// the Client. The default counts elapsed
// time including suspend, where the system has such a clock.
func WithElapsed(now func() time.Duration) ClientOption {
	return clientOption(func(c *clientConfig) { c.elapsed = now })
}

// ObserverOption is what WithObserver returns: an option for a Client, a runner or
// a LeaseManager.
type ObserverOption func(Event)

func (o ObserverOption) applyClient(c *clientConfig)   { c.observers = append(c.observers, o) }
func (o ObserverOption) applyRunner(c *runnerConfig)   { c.observers = append(c.observers, o) }
func (o ObserverOption) applyManager(c *managerConfig) { c.observers = append(c.observers, o) }

// WithObserver has fn told of every event of the Client, or of one runner, LeaseManager
// or Partitions. It is called for one event at a time, in order, off the paths that keep
// leases; one that falls more than 1,024 events behind, and 4 more for each name of the
// Client's LeaseManagers, misses some (see Event.Dropped).
func WithObserver(fn func(Event)) ObserverOption { return fn }

// share is a part of the TTL, and not more than most: with a TTL of hours nobody waits
// for minutes.
func (t timing) share(part int, most time.Duration) time.Duration {
	return max(min(t.ttl/time.Duration(part), most), time.Microsecond)
}

// retry is the pause after failure number n (from 0) of calls for a lease.
func (t timing) retry(n int) time.Duration {
	return clock.Backoff(n, t.share(100, time.Second), t.share(12, 5*time.Second))
}

var errNilOption = driver.Invalid("option", "nil", "an option with a value")

func hasNil(fns []func(Event)) bool {
	return slices.ContainsFunc(fns, func(fn func(Event)) bool { return fn == nil })
}

// timing is when a lease is renewed, counted as lost, and over.
type timing struct {
	ttl, grace, renewEvery, tryTimeout time.Duration
}

// lossAt is when a lease last renewed by a request sent at start counts as lost.
func (t timing) lossAt(start time.Duration) time.Duration { return start + t.ttl - t.grace }

// expiresAt is when the backend may grant it to another: the whole TTL, less 0.1 %
// in case its clock runs faster than ours (NTP slews at most 0.05 %).
func (t timing) expiresAt(start time.Duration) time.Duration { return start + t.ttl - t.ttl/driftPart }

// driftPart is the part of a TTL, 0.1 %, that is allowed for clocks that do not run
// equally fast.
const driftPart = 1000

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
