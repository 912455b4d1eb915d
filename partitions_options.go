package holdfast

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

// PartitionsOption configures Partitions: every [Option], [WithObserver],
// [WithRestart] and [WithRebalanceEvery].
type PartitionsOption interface{ applyPartitions(*partitionsConfig) }

func (o lockOption) applyPartitions(c *partitionsConfig) { o(&c.lock) }

func (o ObserverOption) applyPartitions(c *partitionsConfig) { c.observers = append(c.observers, o) }

func (o RestartOption) applyPartitions(c *partitionsConfig) { c.restart = Backoff(o) }

type partitionsOption func(*partitionsConfig)

func (o partitionsOption) applyPartitions(c *partitionsConfig) { o(c) }

// WithRebalanceEvery sets how often an instance looks at who is alive and who owns
// what while nothing wakes it; each wait is jittered by a fifth. The default is 5 s,
// or three times the backend's Limits.Poll if that is longer (15 s on Azure Blob
// Storage). After a fifth of it without another instance joining, partitions are
// moved. A newcomer takes part after the whole of it, or after WithRenewEvery's time
// if that is longer (see [Partitions]).
func WithRebalanceEvery(d time.Duration) PartitionsOption {
	return partitionsOption(func(c *partitionsConfig) { c.every = given(d) })
}

const defaultRebalanceEvery = 5 * time.Second

// defaultRestart is when a function that failed is called again.
var defaultRestart = Backoff{time.Second, time.Minute}

// partitionsConfig is what the options say.
type partitionsConfig struct {
	lock      lockConfig
	observers []func(Event)
	restart   Backoff
	every     span
}

// partitionsSettings are the options after defaults and checks.
type partitionsSettings struct {
	settings               // of the partitions' locks
	restart  Backoff       // of a function that failed
	every    time.Duration // between looks when nothing happens
	quiet    time.Duration // how long no instance must have joined before partitions are moved
	gap      time.Duration // least time between looks, however often something wakes
	trial    time.Duration // how long a newcomer must have lived to take part
	neglect  time.Duration // what is free for so long, anyone takes, also beyond its share
	extra    time.Duration // how long that is kept at least
	overdue  time.Duration // a member that has not renewed for so long does not count
}

// instanceDigits is how many hexadecimal digits tell an instance from others of the
// same owner.
const instanceDigits = 12

func (c partitionsConfig) settle(l driver.Limits) (partitionsSettings, error) {
	base, err := c.lock.one().settle(l)
	if err != nil {
		return partitionsSettings{}, err
	}
	if most := l.MaxOwner - len(instanceOwner("", newID())); l.MaxOwner > 0 && len(base.owner) > most {
		return partitionsSettings{}, driver.Invalid("Owner", text.Quote(base.owner), fmt.Sprintf("at most %d bytes, so that there is room to tell instances apart", most))
	}
	if c.every.given && c.every.Duration <= 0 {
		return partitionsSettings{}, driver.Invalid("RebalanceEvery", c.every.String(), "more than 0")
	}
	if err := c.restart.check(); err != nil {
		return partitionsSettings{}, err
	}
	every := c.every.or(max(defaultRebalanceEvery, 3*l.Poll))
	return partitionsSettings{
		settings: base, restart: c.restart, every: every,
		quiet: max(every/5, time.Microsecond), gap: max(every/50, time.Microsecond),
		trial: max(every, base.renewEvery), neglect: 2 * every, extra: 60 * every, overdue: base.renewEvery * 3 / 2,
	}, nil
}

// instanceOwner is the owner text of an instance's locks: for people to read, and
// for the other instances to count who owns what.
func instanceOwner(owner, id string) string {
	return owner + "#" + id[len(id)-instanceDigits:]
}
