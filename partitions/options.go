package partitions

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures Partitions: every [holdfast.Option], [WithRestart] and [WithRebalanceEvery].
type Option interface {
	ApplyPartitions(*settings.Partitions)
}

type option func(*settings.Partitions)

func (o option) ApplyPartitions(c *settings.Partitions) { o(c) }

// WithRestart sets when a function that returned an error is called again. The default is after
// 1 s at first, and up to 1 min.
func WithRestart(b holdfast.Backoff) Option {
	return option(func(c *settings.Partitions) { c.Restart = settings.Backoff(b) })
}

// WithRebalanceEvery sets how often an instance reads the records of the group while nothing
// wakes it. Each wait is jittered by a fifth. The default is 5 s, or three times the backend's
// Limits.Poll if that is longer (15 s on Azure Blob Storage). Partitions are moved after a fifth
// of this time without another instance joining. A new instance takes part after all of it, or
// after the time of WithRenewEvery if that is longer; see [Partitions].
func WithRebalanceEvery(d time.Duration) Option {
	return option(func(c *settings.Partitions) { c.RebalanceEvery = settings.Given(d) })
}

const defaultRebalanceEvery = 5 * time.Second

// defaultRestart is when a function that failed is called again.
var defaultRestart = settings.Backoff{Initial: time.Second, Max: time.Minute}

// partitionsSettings are the options after defaults and checks.
type partitionsSettings struct {
	settings.Settings                  // of the partitions' locks
	restart           settings.Backoff // of a function that failed
	every             time.Duration    // between looks when nothing happens
	quiet             time.Duration    // how long no instance must have joined before partitions are moved
	gap               time.Duration    // least time between looks, however often something wakes
	trial             time.Duration    // how long a newcomer must have lived to take part
	neglect           time.Duration    // what is free for so long, anyone takes, also beyond its share
	extra             time.Duration    // how long that is kept at least
	overdue           time.Duration    // a member that has not renewed for so long does not count
}

// instanceDigits is how many hexadecimal digits tell an instance from others of the
// same owner.
const instanceDigits = 12

// resolve fills in defaults and checks all options together.
func resolve(c settings.Partitions, l driver.Limits) (partitionsSettings, error) {
	base, err := c.Lock.WithoutSlots().Resolve(l)
	if err != nil {
		return partitionsSettings{}, err
	}
	if most := l.MaxOwner - len(instanceOwner("", engine.NewID())); l.MaxOwner > 0 && len(base.Owner) > most {
		return partitionsSettings{}, driver.Invalid("Owner", text.Quote(base.Owner), fmt.Sprintf("at most %d bytes, so that there is room to tell instances apart", most))
	}
	if c.RebalanceEvery.Set && c.RebalanceEvery.Duration <= 0 {
		return partitionsSettings{}, driver.Invalid("RebalanceEvery", c.RebalanceEvery.String(), "more than 0")
	}
	if err := c.Restart.Check(); err != nil {
		return partitionsSettings{}, err
	}
	every := c.RebalanceEvery.Or(max(defaultRebalanceEvery, 3*l.Poll))
	return partitionsSettings{
		Settings: base, restart: c.Restart, every: every,
		quiet: max(every/5, time.Microsecond), gap: max(every/50, time.Microsecond),
		trial: max(every, base.RenewEvery), neglect: 2 * every, extra: 60 * every, overdue: base.RenewEvery * 3 / 2,
	}, nil
}

// instanceOwner is the owner text of an instance's locks: for people to read, and
// for the other instances to count who owns what.
func instanceOwner(owner, id string) string {
	return owner + "#" + id[len(id)-instanceDigits:]
}
