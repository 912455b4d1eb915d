package election

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Config has the values that a runner's options have set.
type Config struct {
	Lock        settings.Config
	Restart     *settings.Backoff
	HealthEvery settings.Optional
	Health      func(context.Context) error
	Stall       settings.Optional
	CoolDown    settings.Optional
	MinHold     settings.Optional
	IdleLimit   settings.Optional
}

// runnerSettings are the options after defaults and checks.
type runnerSettings struct {
	settings.Settings
	restart     *settings.Backoff
	healthEvery time.Duration
	health      func(context.Context) error
	stall       time.Duration // 0: no watchdog
	coolDown    time.Duration
	minHold     time.Duration
	idleLimit   time.Duration
}

// resolve fills in defaults and checks all options together.
func (c Config) resolve(l driver.Limits) (runnerSettings, error) {
	base, err := c.Lock.Resolve(l)
	if err == nil {
		err = base.OnlyExclusive("a runner, which leads alone")
	}
	if err != nil {
		return runnerSettings{}, err
	}
	base.Role = telemetry.Leader
	for _, f := range []struct {
		name string
		settings.Optional
	}{{"HealthCheck interval", c.HealthEvery}, {"StallTimeout", c.Stall}, {"CoolDown", c.CoolDown}, {"MinHold", c.MinHold},
		{"IdleLimit", c.IdleLimit}} {
		if f.Set && f.Duration <= 0 {
			return runnerSettings{}, driver.Invalid(f.name, f.String(), "more than 0")
		}
	}
	if c.HealthEvery.Set && c.Health == nil {
		return runnerSettings{}, driver.Invalid("HealthCheck function", "nil", "a function")
	}
	if c.Restart != nil {
		if err := c.Restart.Check(); err != nil {
			return runnerSettings{}, err
		}
	}
	return runnerSettings{
		Settings: base, restart: c.Restart, healthEvery: c.HealthEvery.Duration, health: c.Health, stall: c.Stall.Duration,
		coolDown: c.CoolDown.Or(base.TTL), minHold: c.MinHold.Duration, idleLimit: c.IdleLimit.Or(2 * base.TTL),
	}, nil
}
