package holdfast

import (
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

// managerConfig is what a LeaseManager's options say.
type managerConfig struct {
	lock      lockConfig
	observers []func(Event)
	parallel  int
}

type managerOption func(*managerConfig)

func (o managerOption) applyManager(c *managerConfig) { o(c) }

const (
	defaultParallel = 16
	maxParallel     = 1024
	// givesAtOnce bounds the releases that one manager has under way.
	givesAtOnce = 32
)

// WithParallel sets how many acquisitions of a LeaseManager may be under way at once,
// from 1 to 1,024. The default is 16: enough to acquire thousands of names in seconds, and
// no burst that a backend would notice. At most half of them (at least one) are retries
// of names that fail.
func WithParallel(n int) ManagerOption {
	return managerOption(func(c *managerConfig) { c.parallel = n })
}

func (c managerConfig) settle(l driver.Limits) (settings, error) {
	if c.parallel < 1 || c.parallel > maxParallel {
		return settings{}, driver.Invalid("Parallel", strconv.Itoa(c.parallel), fmt.Sprintf("from 1 to %d", maxParallel))
	}
	if hasNil(c.observers) {
		return settings{}, driver.Invalid("observer", "nil", "a function")
	}
	return c.lock.one().settle(l)
}
