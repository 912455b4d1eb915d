package leases

import (
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures a [LeaseManager]. Every [holdfast.Option] is one; [holdfast.WithSlots] has no
// effect.
type Option interface{ ApplyLeases(*settings.Leases) }

type option func(*settings.Leases)

func (o option) ApplyLeases(c *settings.Leases) { o(c) }

const (
	defaultParallel = 16
	maxParallel     = 1024
	// parallelReleases is the concurrency limit of one manager's releases.
	parallelReleases = 32
)

// WithParallel sets how many acquisitions of a [LeaseManager] may run at once, from 1 to 1,024. The
// default is 16: enough to acquire thousands of names in seconds, without a burst that a backend
// would notice. At most half of them, and at least one, are retries of names that failed.
func WithParallel(n int) Option {
	return option(func(c *settings.Leases) { c.Parallel = n })
}

// resolve fills in defaults and checks all options together.
func resolve(c settings.Leases, l driver.Limits) (settings.Settings, error) {
	if c.Parallel < 1 || c.Parallel > maxParallel {
		return settings.Settings{}, driver.Invalid("Parallel", strconv.Itoa(c.Parallel), fmt.Sprintf("from 1 to %d", maxParallel))
	}
	return c.Lock.WithoutSlots().Resolve(l)
}
