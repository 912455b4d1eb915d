package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/scheduler"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// LeaseManager acquires and keeps the leases of many names, by the thousand: partitions,
// devices, tenants, whatever is to have one owner. It campaigns for each name that it
// manages, renews what it got, and campaigns again after a loss, until Unmanage or
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
	client   *Client
	settings settings
	terms    *terms               // of all holds
	asks     *scheduler.Scheduler // attempts to acquire
	gives    *scheduler.Scheduler // releases
	workers  worker.Group         // of both
	turns    turns                // of writers of data

	mu      sync.Mutex // never held across I/O or a caller's function
	claims  map[string]*claim
	closed  bool
	drained chan struct{} // closed when closed and nothing is claimed any more
	failed  failures      // releases that failed since Close began
}

var errManagerClosed = fmt.Errorf("holdfast: the manager is %w", ErrClosed)

// NewLeaseManager makes a manager of no names; see [LeaseManager.Manage]. Options are
// checked here, against the backend's limits; the error is an *[InvalidError], or
// matches ErrClosed after the client's Shutdown.
//
// Shutdown of the client closes the manager too.
func NewLeaseManager(client *Client, opts ...ManagerOption) (*LeaseManager, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	cfg := managerConfig{lock: client.defaults, parallel: defaultParallel}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "a ManagerOption")
		}
		o.applyManager(&cfg)
	}
	s, err := cfg.settle(client.limits)
	if err != nil {
		return nil, err
	}
	var sinks []*sink
	for _, observe := range cfg.observers {
		sinks = append(sinks, client.newSink(observe))
	}
	m := &LeaseManager{
		client: client, settings: s,
		claims: map[string]*claim{}, drained: make(chan struct{}),
	}
	m.terms = &terms{policy: policy{timing: s.timing, emit: client.emit(sinks)}, over: m.over}
	patience := 3 * s.tryTimeout // an attempt is one call, or two
	m.asks = scheduler.New(client.now, cfg.parallel, patience, &m.workers)
	m.gives = scheduler.New(client.now, givesAtOnce, patience, &m.workers)
	if !client.enlist(m) {
		return nil, errShutdown
	}
	return m, nil
}

// Manage begins to campaign for each of the names, and returns at once. Names that are
// managed already stay so. If one of them is not allowed, the error is an
// *[InvalidError] and nothing is done; after Close or Shutdown it matches ErrClosed.
func (m *LeaseManager) Manage(names ...string) error {
	for _, name := range names {
		if err := driver.ValidateName(name, m.client.limits); err != nil {
			return err
		}
	}
	for {
		some := names[:min(len(names), namesAtOnce)]
		if err := m.manage(some); err != nil {
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

func (m *LeaseManager) manage(names []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.client.closing.Err() != nil:
		return errShutdown
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
		m.client.names.Add(1)
		m.seek(c, m.client.now())
	}
	return nil
}

// Unmanage gives names back: it ends their holds' contexts, releases them, a bounded
// number at a time, and waits until that is done. Stop the work for them first. Names
// that are not managed are no error. A name that is asked for at this moment may still
// be acquired, and is released at once then.
//
// A release is retried until its lease must have expired. The error names what
// failed for so long, and may stay taken until its expiry. If ctx ends first, the
// error says so, and the releases go on in the background. Manage may be called
// again at any time: it campaigns anew as soon as the release is done.
func (m *LeaseManager) Unmanage(ctx context.Context, names ...string) error {
	var goings []*going
	for some := range slices.Chunk(names, namesAtOnce) {
		goings = append(goings, m.unmanage(some, ErrReleased)...)
	}
	var failed failures
	for _, g := range goings {
		select {
		case <-g.done:
			if g.err != nil {
				failed.add(g.name, g.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("holdfast: unmanage %s: the releases go on: %w", text.Quote(g.name), endOf(ctx))
		}
	}
	return failed.err("unmanage")
}

func (m *LeaseManager) unmanage(names []string, cause error) (goings []*going) {
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
func (m *LeaseManager) Leases() []Lease {
	var leases []Lease
	for c := range m.all {
		if c.live() {
			leases = append(leases, c.hold.Lease())
		}
	}
	return byName(leases)
}

// byName sorts leases. Of two of one name, which was managed anew meanwhile, it keeps the later.
func byName(leases []Lease) []Lease {
	slices.Reverse(leases)
	slices.SortStableFunc(leases, func(a, b Lease) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(leases, func(a, b Lease) bool { return a.Name == b.Name })
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
// up to the manager, by Unmanage; its own Release makes the manager campaign for it
// again after a while, so that another may have it.
func (m *LeaseManager) Hold(name string) (*Hold, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.claims[name]; c != nil && c.live() {
		return c.hold, true
	}
	return nil, false
}

// Close gives everything back, as Unmanage does with every name, and waits for it.
// Stop the work first. The error names what could not be released. If ctx ends first,
// the error tells how many releases go on in the background. Close may be called again.
func (m *LeaseManager) Close(ctx context.Context) error {
	m.stop(ErrReleased)
	select {
	case <-m.drained:
		m.workers.Wait(ctx) // they have nothing more to do
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.failed.err("close")
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("holdfast: close: %d leases are still being released: %w", len(m.claims), endOf(ctx))
	}
}

// stop gives every name back, once; cause ends the contexts of the holds.
func (m *LeaseManager) stop(cause error) {
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
		m.unmanage(some, cause)
	}
}

// finish waits for the workers, when Shutdown is done with all holds or has given them up.
func (m *LeaseManager) finish(ctx context.Context) error {
	m.gives.RunAllNow()
	if !m.workers.Wait(ctx) {
		return fmt.Errorf("holdfast: shutdown: a call of a LeaseManager has not returned: %w", endOf(ctx))
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
		m.client.discharge(m)
	}
}

// failures keeps the names of what failed, and the first error, so that thousands of
// them make one readable error.
type failures struct {
	names []string
	first error
}

func (f *failures) add(name string, err error) {
	if f.first == nil {
		f.first = err
	}
	f.names = append(f.names, name)
}

// list names the first few in order.
func (f *failures) list() string {
	const most = 10
	slices.Sort(f.names)
	var list []string
	for _, name := range f.names[:min(len(f.names), most)] {
		list = append(list, text.Quote(name))
	}
	if more := len(f.names) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

func (f *failures) err(op string) error {
	if f.first == nil {
		return nil
	}
	return fmt.Errorf("holdfast: %s: not released, and left to expire: %s; the first error: %w", op, f.list(), f.first)
}
