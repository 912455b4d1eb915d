package leases

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures a [LeaseManager]. Every [holdfast.Option] is one; [holdfast.WithSlots] has no
// effect.
type Option interface{ LeasesOption() }

type option func(*settings.Leases)

func (option) LeasesOption() {}

const (
	defaultParallel = 16
	maxParallel     = 1024
	// parallelReleases is the concurrency limit of one manager's releases, where the backend does not
	// release in batches.
	parallelReleases = 32
)

// WithParallel sets how many acquisitions of a [LeaseManager] may run at once, from 1 to 1,024. The
// default is 16: enough to acquire thousands of names in seconds, without a burst that a backend
// would notice. At most half of them, and at least one, are retries of names that failed; if n is 1, these take turns with
// first attempts.
func WithParallel(n int) Option {
	return option(func(c *settings.Leases) { c.Parallel = n })
}

// WithFunc has the manager call fn for each lease that it is granted, on a goroutine of its own. fn's
// context ends
//
//   - when the lease is lost: the cause matches [holdfast.ErrLost];
//   - when Remove or Close releases the name: the cause is [holdfast.ErrReleased];
//   - at the client's Shutdown: the cause matches [holdfast.ErrClosed].
//
// fn must then stop. The lease is renewed until fn has returned, and released only then. The manager
// does not campaign for the name again before that either, so calls for one name never overlap in this
// process. [holdfast.TokenFromContext] returns the lease's fencing token, [holdfast.HoldFromContext] its
// hold. fn is not called for a name that was removed before its lease was granted.
//
// What fn returns matters:
//
//   - An error while the lease is held is reported as an EventError, and fn is called again after a
//     backoff; see [WithRestart]. So is [runtime.Goexit], on another goroutine.
//   - nil means that there is nothing more to do here. The lease is kept, so that no other instance
//     begins with the name, until it is lost or removed. The next lease of the name is another call.
//   - If fn has not returned when another may be granted a lost lease, an EventOverrun reports it, and the
//     function of [holdfast.WithOverrunHook] is called.
//   - A panic of fn ends the program, as on any goroutine. The lease is released before.
//
// fn may call Remove with its own name and context: Remove then does not wait for the release, which
// follows when fn has returned. fn must not wait for Close or Shutdown, which wait for fn. The Release of its
// hold does nothing and returns an error.
func WithFunc(fn func(ctx context.Context, name string) error) Option {
	return option(func(c *settings.Leases) { c.Func, c.NilFunc = fn, fn == nil })
}

// WithRestart sets the backoff after which the function of [WithFunc] is called again when it has returned
// an error. The default is from 1 s to 1 min.
func WithRestart(b holdfast.Backoff) Option {
	return option(func(c *settings.Leases) { c.Restart = settings.Backoff(b) })
}

// defaultRestart is the default of WithRestart.
var defaultRestart = settings.Backoff{Initial: time.Second, Max: time.Minute}

// resolve fills in defaults and checks all options together.
func resolve(c settings.Leases, l driver.Limits) (settings.Settings, error) {
	if c.Parallel < 1 || c.Parallel > maxParallel {
		return settings.Settings{}, driver.Invalid("Parallel", strconv.Itoa(c.Parallel), fmt.Sprintf("from 1 to %d", maxParallel))
	}
	if c.NilFunc {
		return settings.Settings{}, driver.Invalid("fn", "nil", "a function")
	}
	if err := c.Restart.Check(); err != nil {
		return settings.Settings{}, err
	}
	s, err := c.Lock.WithoutSlots().Resolve(l)
	if err == nil {
		err = s.OnlyExclusive("a LeaseManager")
	}
	return s, err
}
