package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

// runnerConfig is what a runner's options say.
type runnerConfig struct {
	lock        lockConfig
	observers   []func(Event)
	restart     *Backoff
	healthEvery span
	health      func(context.Context) error
	stall       span
	coolDown    span
	minHold     span
	idleLimit   span
}

// Backoff is a growing delay between tries: about Initial at first, doubling up to
// Max, each changed by up to a quarter at random.
type Backoff struct{ Initial, Max time.Duration }

func (b Backoff) check() error {
	if b.Initial <= 0 || b.Max < b.Initial {
		return driver.Invalid("Backoff", text.Duration(b.Initial)+" to "+text.Duration(b.Max), "more than 0, and Max at least Initial")
	}
	return nil
}

// RestartOption is what WithRestart returns: an option for a runner or Partitions.
type RestartOption Backoff

func (o RestartOption) applyRunner(c *runnerConfig) { c.restart = (*Backoff)(&o) }

// WithRestart makes a runner's Run carry on when its task returns an error while
// leading: the lock is released, so that another instance may fare better, and after
// the backoff this one campaigns again. Without it Run returns the error. The backoff
// starts afresh after a term longer than Max.
//
// For Partitions it sets when a function that returned an error is called again.
func WithRestart(b Backoff) RestartOption { return RestartOption(b) }

// WithHealthCheck has fn called before each campaign and every so often while this
// instance leads; each call has that long. If it fails, panics or takes longer, an
// EventError tells why (of a panic, with its stack), and leadership is given up as
// after a stall; this instance campaigns again after the cool-down, and once fn
// succeeds. Calls never overlap. fn must respect its context: the client's Shutdown
// waits for it.
func WithHealthCheck(every time.Duration, fn func(ctx context.Context) error) RunnerOption {
	return runnerOption(func(c *runnerConfig) { c.healthEvery, c.health = given(every), fn })
}

// WithStallTimeout gives leadership up when the task has not called [Heartbeat] for
// d: a leader that hangs would otherwise keep its lease for ever. The task's
// context ends and the lease is renewed no more, so others take over at its expiry
// even if the task never returns; then an EventOverrun is told. A task that was told
// to stop, by a canceled context, StepDown or Close, is watched until it returns.
func WithStallTimeout(d time.Duration) RunnerOption {
	return runnerOption(func(c *runnerConfig) { c.stall = given(d) })
}

// WithCoolDown sets how long a runner that stepped down lets others go first,
// counted from the release of the lock. The default is one TTL.
func WithCoolDown(d time.Duration) RunnerOption {
	return runnerOption(func(c *runnerConfig) { c.coolDown = given(d) })
}

// WithMinHold keeps the lock for at least d after it was acquired, even if the task
// succeeds sooner, so that a twin whose clock is late does not run the same job
// again. Shutdown, Close and StepDown do not wait for it. The default is 0.
func WithMinHold(d time.Duration) RunnerOption {
	return runnerOption(func(c *runnerConfig) { c.minHold = given(d) })
}

// WithIdleLimit sets how long RunTaskOnLeader keeps leadership after its last call
// has ended; then the process has stopped calling, and another may lead. The
// default is two TTLs.
func WithIdleLimit(d time.Duration) RunnerOption {
	return runnerOption(func(c *runnerConfig) { c.idleLimit = given(d) })
}

// runnerSettings are a runner's options after defaults and checks.
type runnerSettings struct {
	settings
	restart     *Backoff
	healthEvery time.Duration
	health      func(context.Context) error
	stall       time.Duration // 0: no watchdog
	coolDown    time.Duration
	minHold     time.Duration
	idleLimit   time.Duration
}

func (c runnerConfig) settle(l driver.Limits) (runnerSettings, error) {
	base, err := c.lock.settle(l)
	if err != nil {
		return runnerSettings{}, err
	}
	for _, f := range []struct {
		name string
		span
	}{{"HealthCheck interval", c.healthEvery}, {"StallTimeout", c.stall}, {"CoolDown", c.coolDown}, {"MinHold", c.minHold}, {"IdleLimit", c.idleLimit}} {
		if f.given && f.Duration <= 0 {
			return runnerSettings{}, driver.Invalid(f.name, f.String(), "more than 0")
		}
	}
	if c.healthEvery.given && c.health == nil {
		return runnerSettings{}, driver.Invalid("HealthCheck function", "nil", "a function")
	}
	if c.restart != nil {
		if err := c.restart.check(); err != nil {
			return runnerSettings{}, err
		}
	}
	return runnerSettings{
		settings: base, restart: c.restart, healthEvery: c.healthEvery.Duration, health: c.health, stall: c.stall.Duration,
		coolDown: c.coolDown.or(base.ttl), minHold: c.minHold.Duration, idleLimit: c.idleLimit.or(2 * base.ttl),
	}, nil
}
