package partitions

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures [Partitions]. Every [holdfast.Option] is one; [holdfast.WithSlots] has no effect.
type Option interface{ PartitionsOption() }

type option func(*settings.Partitions)

func (option) PartitionsOption() {}

// WithRestart sets the backoff after which a function that returned an error is called again. The
// default is from 1 s to 1 min.
func WithRestart(b holdfast.Backoff) Option {
	return option(func(c *settings.Partitions) { c.Restart = settings.Backoff(b) })
}

// WithRebalanceEvery sets how often an instance reads the records of the group while nothing wakes
// it. Each wait is jittered by a fifth. The default is 5 s, or three times the backend's
// Limits.Poll if that is longer (15 s on Azure Blob Storage). Partitions are moved when no instance
// has joined for a fifth of this time. A new instance takes part after this time, or after the time
// of [holdfast.WithRenewEvery] if that is longer; see [Partitions].
func WithRebalanceEvery(d time.Duration) Option {
	return option(func(c *settings.Partitions) { c.RebalanceEvery = settings.Given(d) })
}

const defaultRebalanceEvery = 5 * time.Second

// defaultRestart is the default of WithRestart.
var defaultRestart = settings.Backoff{Initial: time.Second, Max: time.Minute}

// partitionsSettings are the options after defaults and checks.
type partitionsSettings struct {
	settings.Settings                  // of the partitions' locks
	restart           settings.Backoff // of a function that failed
	every             time.Duration    // between reads while nothing happens
	quiet             time.Duration    // partitions are moved when no instance has joined for so long
	gap               time.Duration    // the least time between reads, however many wake-ups there are
	trial             time.Duration    // how long a newcomer must have lived to take part
	neglected         time.Duration    // partitions that have been free for so long may be acquired beyond the share
	keepNeglected     time.Duration    // how long these are kept
	overdue           time.Duration    // a member that has not renewed for so long does not count
	reportEvery       time.Duration    // between reports of the same unreadable records
}

// instanceDigits is how many hexadecimal digits distinguish instances with the same owner text.
const instanceDigits = 12

// resolve fills in defaults and checks all options together.
func resolve(c settings.Partitions, l driver.Limits) (partitionsSettings, error) {
	base, err := c.Lock.WithoutSlots().Resolve(l)
	if err == nil {
		err = base.OnlyExclusive("Partitions")
	}
	if err != nil {
		return partitionsSettings{}, err
	}
	if most := l.MaxOwner - len(instanceOwner("", engine.NewID())); l.MaxOwner > 0 && len(base.Owner) > most {
		return partitionsSettings{}, driver.Invalid("Owner", driver.Quote(base.Owner),
			fmt.Sprintf("at most %d bytes, so that the digits of the instance fit", most))
	}
	if c.RebalanceEvery.Set && c.RebalanceEvery.Duration <= 0 {
		return partitionsSettings{}, driver.Invalid("RebalanceEvery", c.RebalanceEvery.String(), "more than 0")
	}
	if err := c.Restart.Check(); err != nil {
		return partitionsSettings{}, err
	}
	base.Role = telemetry.Partition
	every := c.RebalanceEvery.Or(max(defaultRebalanceEvery, 3*l.Poll))
	return partitionsSettings{
		Settings: base, restart: c.Restart, every: every,
		quiet: max(every/5, time.Microsecond), gap: max(every/50, time.Microsecond),
		trial: max(every, base.RenewEvery), neglected: 2 * every, keepNeglected: 60 * every,
		overdue: base.RenewEvery * 3 / 2, reportEvery: 60 * every,
	}, nil
}

// instanceOwner returns the owner text of an instance's locks. People read it, and the other
// instances count by it who owns how many partitions.
func instanceOwner(owner, id string) string {
	return owner + "#" + id[len(id)-instanceDigits:]
}
