package leases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/scheduler"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// LeaseManager acquires and keeps the leases of many names, by the thousand: partitions,
// devices, tenants, whatever is to have one owner. It campaigns for each name that it
// manages, renews what it got, and campaigns again after a loss, until Remove or
// Close. All methods are safe for concurrent use.
//
// The program learns by events what it has (see [WithObserver]): for each name
// EventAcquired, and then EventReleased or EventLost, or, for a release that failed
// until the lease had expired, an EventError for every try. A lease is lost before another can
// be granted it: from then on, work for it has WithGrace's time to stop. The manager does
// not see that work, and so tells of no overrun. [LeaseManager.Hold] gives the hold:
// work goes by its context, which ends with the lease, and hands its token to whatever
// it writes to. A lease that is acquired again is another hold with a higher
// token: nothing of the work under the old one may go on.
//
// A lease held costs no goroutine and no timer, and about 0.7 KiB of memory where there are
// thousands. At most
// WithParallel's number of acquisitions are under way at once, and a name that fails
// is retried, with a growing pause and an EventError for every try, on at most half of
// them: it delays no other. There is no order among the names.
type LeaseManager struct {
	client   *engine.Client
	settings settings.Settings
	policy   *engine.Policy       // of all holds
	asks     *scheduler.Scheduler // attempts to acquire
	gives    *scheduler.Scheduler // releases
	workers  worker.Group         // of both

	mu      sync.Mutex // never held across I/O or a caller's function
	claims  map[string]*claim
	closed  bool
	drained chan struct{}   // closed when closed and nothing is claimed any more
	failed  engine.Failures // releases that failed since Close began
}

var errManagerClosed = fmt.Errorf("holdfast: the manager is %w", driver.ErrClosed)

// New makes a manager of no names; see [LeaseManager.Add]. Options are
// checked here, against the backend's limits; the error is an *[InvalidError], or
// matches ErrClosed after the client's Shutdown.
//
// Shutdown of the client closes the manager too.
func New(client *holdfast.Client, opts ...Option) (*LeaseManager, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	c := (*engine.Client)(client)
	cfg := settings.Leases{Lock: c.Defaults(), Parallel: defaultParallel}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "an Option")
		}
		o.ApplyLeases(&cfg)
	}
	s, err := resolve(cfg, c.Limits())
	if err != nil {
		return nil, err
	}
	m := &LeaseManager{
		client: c, settings: s,
		claims: map[string]*claim{}, drained: make(chan struct{}),
	}
	m.policy = &engine.Policy{Policy: renewal.Policy{Timing: s.Timing, Emit: c.EmitTo(s.Observers)}, Over: m.over}
	patience := 3 * s.RequestTimeout // an attempt is one call, or two
	m.asks = scheduler.New(c.Now, cfg.Parallel, patience, &m.workers)
	m.gives = scheduler.New(c.Now, parallelReleases, patience, &m.workers)
	if !c.Enlist(m) {
		return nil, cause.ErrShutdown
	}
	return m, nil
}

// Add begins to campaign for each of the names, and returns at once. Names that are
// managed already stay so. If one of them is not allowed, the error is an
// *[InvalidError] and nothing is done; after Close or Shutdown it matches ErrClosed.
func (m *LeaseManager) Add(names ...string) error {
	for _, name := range names {
		if err := driver.ValidateName(name, m.client.Limits()); err != nil {
			return err
		}
	}
	for {
		some := names[:min(len(names), namesAtOnce)]
		if err := m.add(some); err != nil {
			return err
		}
		if names = names[len(some):]; len(names) == 0 {
			return nil
		}
	}
}

// namesAtOnce bounds how many names are dealt with before others get the mutex: losses of
// leases, for one, which must not wait for a call with all names of a large manager.
const namesAtOnce = 256

func (m *LeaseManager) add(names []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.client.Closing().Err() != nil:
		return cause.ErrShutdown
	case m.closed:
		return errManagerClosed
	}
	for _, name := range names {
		if c := m.claims[name]; c != nil {
			c.wanted = true // one on its way back is asked for again then
			continue
		}
		c := &claim{name: strings.Clone(name), wanted: true}
		m.claims[c.name] = c
		m.client.AddNames(1)
		m.seek(c, m.client.Now())
	}
	return nil
}

// Remove gives names back: it ends their holds' contexts, releases them, a bounded
// number at a time, and waits until that is done. Stop the work for them first. Names
// that are not managed are no error. A name that is asked for at this moment may still
// be acquired, and is released at once then.
//
// A release is retried until its lease must have expired. The error names what
// failed for so long, and may stay taken until its expiry. If ctx ends first, the
// error says so, and the releases go on in the background. Add may be called
// again at any time: it campaigns anew as soon as the release is done.
func (m *LeaseManager) Remove(ctx context.Context, names ...string) error {
	var goings []*going
	for some := range slices.Chunk(names, namesAtOnce) {
		goings = append(goings, m.remove(some, cause.ErrReleased)...)
	}
	var failed engine.Failures
	for _, g := range goings {
		select {
		case <-g.done:
			if g.err != nil {
				failed.Add(g.name, g.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("holdfast: remove %s: the releases go on: %w", text.Quote(g.name), cause.Of(ctx))
		}
	}
	return failed.Err("remove")
}

func (m *LeaseManager) remove(names []string, cause error) (goings []*going) {
	var rest aftermath
	m.mu.Lock()
	for _, name := range names {
		if c := m.claims[name]; c != nil {
			if g := m.abandon(c, cause, &rest); g != nil {
				goings = append(goings, g)
			}
		}
	}
	m.mu.Unlock()
	rest.settle()
	return goings
}

// Leases lists the leases held, sorted by name. With thousands of leases it is not an atomic
// snapshot.
func (m *LeaseManager) Leases() []driver.Lease {
	var leases []driver.Lease
	for c := range m.all {
		if c.live() {
			leases = append(leases, c.hold.Lease())
		}
	}
	return byName(leases)
}

// byName sorts leases. Of two of one name, which was managed anew meanwhile, it keeps the later.
func byName(leases []driver.Lease) []driver.Lease {
	slices.Reverse(leases)
	slices.SortStableFunc(leases, func(a, b driver.Lease) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(leases, func(a, b driver.Lease) bool { return a.Name == b.Name })
}

// all ranges over the claims with the mutex held, and lets others have it now and then.
func (m *LeaseManager) all(yield func(*claim) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.claims {
		if n++; n%namesAtOnce == 0 {
			m.mu.Unlock()
			m.mu.Lock()
		}
		if m.claims[c.name] == c && !yield(c) {
			return
		}
	}
}

// Hold returns the hold of a name, if its lease is held at this moment. To release it is
// up to the manager, by Remove; its own Release makes the manager campaign for it
// again after a while, so that another may have it.
func (m *LeaseManager) Hold(name string) (*holdfast.Hold, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.claims[name]; c != nil && c.live() {
		return (*holdfast.Hold)(c.hold), true
	}
	return nil, false
}

// Close gives everything back, as Remove does with every name, and waits for it.
// Stop the work first. The error names what could not be released. If ctx ends first,
// the error tells how many releases go on in the background. Close may be called again.
func (m *LeaseManager) Close(ctx context.Context) error {
	m.Stop(cause.ErrReleased)
	select {
	case <-m.drained:
		m.workers.Wait(ctx) // they have nothing more to do
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.failed.Err("close")
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("holdfast: close: %d leases are still being released: %w", len(m.claims), cause.Of(ctx))
	}
}

// stop gives every name back, once; cause ends the contexts of the holds.
func (m *LeaseManager) Stop(cause error) {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.checkDrained()
	m.mu.Unlock()
	if !first {
		return
	}
	var names []string
	for c := range m.all {
		names = append(names, c.name)
	}
	for some := range slices.Chunk(names, namesAtOnce) {
		m.remove(some, cause)
	}
}

// finish waits for the workers, when Shutdown is done with all holds or has given them up.
func (m *LeaseManager) Finish(ctx context.Context) error {
	m.gives.RunAllNow()
	if !m.workers.Wait(ctx) {
		return fmt.Errorf("holdfast: shutdown: a call of a LeaseManager has not returned: %w", cause.Of(ctx))
	}
	return nil
}

// checkDrained lets the client go when nothing is left to do; m.mu is held.
func (m *LeaseManager) checkDrained() {
	if !m.closed || len(m.claims) > 0 {
		return
	}
	select {
	case <-m.drained:
	default:
		close(m.drained)
		m.client.Discharge(m)
	}
}
