// Package leases holds the leases of many names, by the thousand: partitions, devices, tenants,
// whatever has one owner at a time.
//
//	manager, err := leases.New(client, leases.WithFunc(func(ctx context.Context, name string) error {
//		return work(ctx, name) // the context ends with the lease
//	}))
//	…
//	err = manager.Add("north", "south")
//
// For a fixed number of partitions that all instances of a service share evenly, see package
// partitions. For one name, [holdfast.Client.Do] is simpler.
package leases

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// LeaseManager acquires and renews the leases of many names. It campaigns for each name that was
// added, renews the leases that it was granted, and campaigns again after a loss, until Remove or
// Close. All methods are safe for concurrent use.
//
// [WithFunc] sets the function that works under each lease. A lease that it works under is released
// after it has returned.
//
// Events report what the manager holds; see [holdfast.WithObserver]. For each name
// [holdfast.EventAcquired] comes first, then [holdfast.EventReleased] or [holdfast.EventLost]. If
// every attempt to release failed until the lease had expired, each reports a
// [holdfast.EventError] instead.
//
// A lease is lost before it can be granted to another holder; the work then has the time of
// [holdfast.WithGrace] to stop. A lease that is acquired again is another hold with a higher token: work
// of the old hold must not continue with it.
//
// Without a function, [LeaseManager.Hold] returns the hold of a name. Do the work with the hold's context,
// which ends with the lease, and give the hold's token to whatever the work writes to. The manager does
// not see that work: it reports no overrun. It releases a lease at once when its name is removed, and a lost lease
// after the grace. Do not begin the work from an observer's events: they can be dropped, and the lease would stay
// held without work.
//
// A lease that is held costs no goroutine but that of its function, no timer, and about 0.5 KiB of memory where there are
// thousands. The number of acquisitions that run at once is limited; see [WithParallel]. A name
// whose acquisition fails is retried with a backoff, reports a [holdfast.EventError] for each
// attempt, and delays no other name. There is no order among the names.
type LeaseManager struct {
	client   *engine.Client
	settings settings.Settings
	policy   *engine.Policy                               // of all holds
	fn       func(ctx context.Context, name string) error // or nil
	restart  settings.Backoff                             // of fn
	attempts *dispatch.Schedule[*campaign]
	releases *dispatch.Schedule[*pendingRelease]
	workers  worker.Group // of both, and the calls of fn

	mu       sync.Mutex // never held across I/O or a caller's function
	names    map[string]*managedName
	removals map[*managedName]*removal // that Remove waits for
	closed   bool
	drained  chan struct{}   // closed when closed and no name is left
	failed   engine.Failures // releases that failed since Close began
}

var errManagerClosed = driver.Errorf("the manager is %w", driver.ErrClosed)

// New makes a manager without names; see [LeaseManager.Add]. Options are checked here, against the
// backend's limits. The error is an *[holdfast.InvalidError], or matches [holdfast.ErrClosed] after
// the client's Shutdown.
//
// The client's Shutdown closes the manager, too.
func New(client *holdfast.Client, opts ...Option) (*LeaseManager, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	c := bridge.Client(client)
	cfg := settings.Leases{Lock: c.Defaults(), Parallel: defaultParallel, Restart: defaultRestart}
	if err := bridge.ApplyOptions[option](opts, &cfg, &cfg.Lock, "leases"); err != nil {
		return nil, err
	}
	s, err := resolve(cfg, c.Info().Limits)
	if err != nil {
		return nil, err
	}
	m := &LeaseManager{
		client: c, settings: s, fn: cfg.Func, restart: cfg.Restart,
		names: map[string]*managedName{}, removals: map[*managedName]*removal{}, drained: make(chan struct{}),
	}
	m.policy = &engine.Policy{
		Policy: renewal.Policy{Timing: s.Timing, Emit: c.EmitTo(s.Observers), Overrun: s.Overrun, Role: telemetry.Managed},
		Slots:  1,
		Over:   m.holdEnded,
		Func:   m.fn != nil,
	}
	patience := 3 * s.RequestTimeout // an attempt sends one request, or two
	m.attempts = dispatch.NewSchedule(c.Now, dispatch.Single(&m.workers, cfg.Parallel, func(c *campaign) dispatch.Call {
		return dispatch.Call{Do: c.do, Patience: patience}
	}), nil)
	releases := parallelReleases
	if c.Capabilities().BatchReleaser != nil {
		releases = engine.BatchedReleases // which wait for a few calls
	}
	m.releases = dispatch.NewSchedule(c.Now, dispatch.Single(&m.workers, releases, func(r *pendingRelease) dispatch.Call {
		return dispatch.Call{Do: r.do, Patience: patience}
	}), nil)
	if !c.Enlist(participant{m}) {
		return nil, cause.ErrShutdown
	}
	return m, nil
}

// Add begins to campaign for each of the names, in a random order, and returns at once: instances that
// add the same names then do not compete for each of them. Names that were added before are no error. If
// one of the names is not allowed, nothing is done and the error is an *[holdfast.InvalidError]. After
// Close or Shutdown the error matches [holdfast.ErrClosed].
func (m *LeaseManager) Add(names ...string) error {
	for _, name := range names {
		if err := engine.ValidateSlots(name, 1, m.client.Info().Limits); err != nil {
			return err
		}
	}
	names = slices.Clone(names)
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
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

// namesAtOnce bounds how many names are processed before mu is released, so that the loss of a
// lease does not wait for a call with all names of a large manager.
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
		if n := m.names[name]; n != nil {
			n.wanted = true // if it is being released, it is acquired again afterwards
			continue
		}
		n := &managedName{name: strings.Clone(name), wanted: true}
		m.names[n.name] = n
		m.client.AddNames(1)
		m.startCampaign(n, m.client.Now())
	}
	return nil
}

// Remove ends the contexts of the names' holds, releases the names, a limited number at a time, and
// waits until that is done. A name whose function runs ([WithFunc]) is released after the function has
// returned; stop other work for the names before. Names that were not added are no error.
// If a request for a name is under way, the name may still be acquired; it is released at once.
//
// A release is retried until its lease has expired. The error names what could not be released; it
// may stay taken until its expiry. If ctx ends first, the error says so, and the releases continue
// in the background. Add may be called again at any time; the manager then campaigns as soon as the
// release is done.
func (m *LeaseManager) Remove(ctx context.Context, names ...string) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	var removals []*removal
	for some := range slices.Chunk(names, namesAtOnce) {
		removals = append(removals, m.removeAll(some, cause.ErrReleased)...)
	}
	var failed engine.Failures
	for _, r := range removals {
		if m.fn != nil && r.hold != nil && r.hold.Encloses(ctx) {
			continue // the caller is the function that the release waits for
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			if !cause.IsClosed(r.done) {
				return driver.Errorf("remove %s: the releases continue in the background: %w", driver.Quote(r.name), cause.Of(ctx))
			}
		}
		if r.err != nil {
			failed.Add(r.name, r.err)
		}
	}
	return failed.Err("remove")
}

// Leases lists the leases that are held, sorted by name. With thousands of leases it is not an
// atomic snapshot.
func (m *LeaseManager) Leases() []holdfast.Lease {
	var leases []holdfast.Lease
	for n := range m.all {
		if n.live() {
			leases = append(leases, n.hold.Lease())
		}
	}
	return byName(leases)
}

// byName sorts leases. Of two with one name, which was removed and added meanwhile, it keeps the
// later.
func byName(leases []driver.Lease) []driver.Lease {
	slices.Reverse(leases)
	slices.SortStableFunc(leases, func(a, b driver.Lease) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(leases, func(a, b driver.Lease) bool { return a.Name == b.Name })
}

// all ranges over the names with mu held. It releases mu briefly after every namesAtOnce names.
func (m *LeaseManager) all(yield func(*managedName) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	for _, n := range m.names {
		if count++; count%namesAtOnce == 0 {
			m.mu.Unlock()
			m.mu.Lock()
		}
		if m.names[n.name] == n && !yield(n) {
			return
		}
	}
}

// Hold returns the hold of a name, if its lease is held at this moment. Release it with
// [LeaseManager.Remove]. After the hold's own Release, the manager lets others go first and then
// campaigns for the name again. With [WithFunc] the hold's own Release does nothing and returns an
// *[holdfast.InvalidError].
func (m *LeaseManager) Hold(name string) (*holdfast.Hold, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[name]; n != nil && n.live() {
		hold, ok := bridge.PublicHold(n.hold).(*holdfast.Hold)
		return hold, ok
	}
	return nil, false
}

// Close releases all names, as [LeaseManager.Remove] does, and waits until that is done. The error names what
// could not be released. If ctx ends first, the error says how many releases continue in the background. Close may be called again.
func (m *LeaseManager) Close(ctx context.Context) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	participant{m}.Stop(cause.ErrReleased)
	select {
	case <-m.drained:
		m.workers.Wait(ctx) // they have nothing left to do
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !cause.IsClosed(m.drained) {
		return driver.Errorf("close: %d leases are still being released: %w", len(m.names), cause.Of(ctx))
	}
	return m.failed.Err("close")
}

// participant is what the client's Shutdown knows of a manager.
type participant struct{ *LeaseManager }

// Stop begins to release all names; cause ends the contexts of their holds. Only the first call
// does anything.
func (m participant) Stop(cause error) {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.checkDrained()
	m.mu.Unlock()
	if !first {
		return
	}
	var names []string
	for n := range m.all {
		names = append(names, n.name)
	}
	for some := range slices.Chunk(names, namesAtOnce) {
		m.removeAll(some, cause)
	}
}

// Finish waits for the workers, once Shutdown has released all holds or given them up.
func (m participant) Finish(ctx context.Context) error {
	m.releases.RunAllNow()
	if !m.workers.Wait(ctx) {
		return driver.Errorf("shutdown: a call or a function of a LeaseManager has not returned: %w", cause.Of(ctx))
	}
	return nil
}

// checkDrained reports to Close and to the client that no name is left, if that is so; mu is held.
func (m *LeaseManager) checkDrained() {
	if !m.closed || len(m.names) > 0 {
		return
	}
	select {
	case <-m.drained:
	default:
		close(m.drained)
		m.client.Discharge(participant{m})
	}
}
