package partitions

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Concurrency limits of one instance: of requests and single reads, of releases, and of watches of partitions.
const (
	maxRequests = 16
	maxReleases = 64
	maxWatched  = 32
)

// run is one call of Run: this instance among the others. Run's goroutine reads the records, joins
// the members, and acquires and reassigns partitions. Each partition's work has a goroutine of its
// own.
type run struct {
	*Partitions
	ctx        context.Context   // of Run; ends also with the client
	stop       func()            // ends ctx
	me         string            // the owner text of this instance's locks
	lock       settings.Settings // of a partition's lock
	table      *table
	wakeUp     chan struct{} // capacity 1: read soon
	releases   chan struct{} // has a value for each release under way
	goroutines sync.WaitGroup

	mu       sync.Mutex // never held across I/O or a caller's function
	works    map[int]*work
	acquired uint64 // partitions so far

	// The rest belongs to Run's goroutine.
	membership *engine.Hold // of this instance's member lock, or nil
	standingBy bool         // all member locks were taken
	begun      moment       // when the group's records were first read

	nextRead    time.Duration // the longest wait until the next read
	failedReads int           // in a row
	watches     map[string]func()

	failedRounds  int           // in a row: rounds of requests of which none succeeded and some failed
	nextRequestAt time.Duration // the end of the backoff after them

	reported    []string      // the records last reported as unreadable
	reportAgain time.Duration // when to report the same ones again

	memberSince    map[string]time.Duration // the members of the last read, and when each was first seen
	memberJoined   bool                     // at the last read
	membersChanged bool                     // at the last read
	vacant         moment                   // when a member lock became free after all had been taken
	unsettled      moment                   // since when the members are not settled

	surplus      moment        // since when this instance owns more than its share
	leastSurplus int           // the least number beyond the share at any read since then
	keepUntil    moment        // until when it keeps neglected partitions beyond its share
	freeCount    int           // partitions that were free at the last read
	freeSince    time.Duration // since when there are so many
	freeReads    int           // reads in a row that showed free partitions for others to acquire
}

// moment is a time of the client's clock, or none.
type moment struct {
	time.Duration
	set bool
}

func (m *moment) setOnce(now time.Duration) {
	if !m.set {
		m.Duration, m.set = now, true
	}
}

// withoutWork returns the settings of a lock under which no work is done.
func withoutWork(s settings.Settings) settings.Settings {
	s.Data, s.Overrun, s.Role = nil, nil, telemetry.Internal
	return s
}

func newRun(ctx context.Context, stop func(), p *Partitions) *run {
	r := &run{
		Partitions: p, ctx: ctx, stop: stop, me: instanceOwner(p.settings.Owner, engine.NewID()), lock: p.settings.Settings,
		wakeUp: make(chan struct{}, 1), releases: make(chan struct{}, maxReleases),
		works: map[int]*work{}, memberSince: map[string]time.Duration{}, watches: map[string]func(){},
	}
	r.lock.Owner = r.me
	r.table = newTable(p.client, p.group, p.n, 12*p.settings.every, r.holds)
	return r
}

// takePart takes part until the context ends, and returns when all partitions are released. The
// member lock is released at once, so that the others count one instance less while functions are
// still returning.
func (r *run) takePart() {
	defer r.goroutines.Wait()
	defer r.stop() // also after a panic of the driver that Run's caller recovers
	defer func() {
		for _, stop := range r.watches {
			stop()
		}
	}()
	for r.ctx.Err() == nil {
		r.rebalance()
		r.wait()
	}
}

// wait returns when it is time for the next read.
func (r *run) wait() {
	timer := time.NewTimer(r.settings.gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
		return
	}
	timer.Reset(max(r.nextRead-r.settings.gap, 0))
	select {
	case <-timer.C:
	case <-r.wakeUp:
	case <-r.ctx.Done():
	}
}

// readSoon ends the wait for the next read.
func (r *run) readSoon() {
	select {
	case r.wakeUp <- struct{}{}:
	default:
	}
}

// readWithin makes the next read come in at most d.
func (r *run) readWithin(d time.Duration) { r.nextRead = min(r.nextRead, max(d, 0)) }

// rebalance reads the records once and acts on them.
func (r *run) rebalance() {
	set := r.settings
	r.nextRead = timing.Jitter(set.every, 0.2)
	if err := r.table.read(r.ctx, set.RequestTimeout, max(set.RequestTimeout, set.every)); err != nil {
		if r.ctx.Err() == nil {
			r.reportReadFailure(err)
		}
		r.readWithin(timing.Backoff(r.failedReads, set.quiet, set.every))
		r.failedReads++
		return
	}
	r.failedReads = 0
	r.reportUnreadable()
	r.join()
	members := r.members()
	settled, overdue := r.checkMembers(members)
	owners := r.owners()
	plan := plan.New(r.me, members, owners)
	r.returnSurplus(plan.Shares[r.me], settled)
	if !settled || len(plan.Take) > 0 && !r.backingOff() {
		r.freeReads = 0
	}
	if settled || overdue {
		mine, neglected := r.untaken(plan, owners)
		r.acquireAll(append(plan.Take, mine...), false)
		if r.acquireAll(neglected, true) > 0 {
			r.keepUntil = moment{r.client.Now() + set.keepNeglected, true}
		}
	}
	r.watchOthers(plan, r.owners(), settled)
	r.table.unchanged = settled && !r.membersChanged && plan.Even()
}

func (r *run) reportReadFailure(err error) {
	r.emit(event.Event{Type: event.Error, Name: r.group, Owner: r.me, Op: "inspect", Err: err, Time: time.Now()})
}

// reportUnreadable reports the records that could not be read: when they have changed, and from
// time to time. No instance acquires them.
func (r *run) reportUnreadable() {
	bad, now := r.table.unreadable, r.client.Now()
	if len(bad.Names) == 0 {
		r.reported = nil
		return
	}
	if slices.Equal(bad.Names, r.reported) && now < r.reportAgain {
		return
	}
	r.reported, r.reportAgain = bad.Names, now+r.settings.reportEvery
	r.reportReadFailure(driver.Errorf("partitions of %q: records that cannot be read: %s; the first error: %w", r.group, bad.List(),
		bad.First))
}

// owners lists the owner of each partition. Of the partitions that this instance works on it knows
// more than was read: they are its own while it holds their leases, also while their work stops.
func (r *run) owners() []string {
	out := make([]string, r.n)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range out {
		out[i] = r.table.rows[i].owner()
		w := r.works[i]
		switch {
		case w != nil && w.hold.LeaseErr() == nil:
			out[i] = r.me
		case out[i] == r.me:
			out[i] = plan.Unknown // a request in doubt, which is being cleaned up
		case w != nil && out[i] == plan.Nobody:
			out[i] = plan.Unknown // lost, but the function has not returned: others may acquire it
		}
	}
	return out
}

// holds reports whether this instance holds the lock of a row of the table, and its owner text.
func (r *run) holds(row int) (owner string, held bool) {
	if row >= r.n {
		m := r.membership
		return r.me, m != nil && m.Name() == r.table.names[row] && m.LeaseErr() == nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.works[row]
	return r.me, w != nil && w.hold.LeaseErr() == nil
}

// returnSurplus stops work on the partitions beyond this instance's share, the last acquired ones
// first, and neglected ones last. It acts only on a surplus that has lasted for a while.
func (r *run) returnSurplus(share int, settled bool) {
	mine := r.live()
	now := r.client.Now()
	if r.membersChanged {
		r.keepUntil.set = false // another member may be able to acquire the neglected partitions
	}
	if r.keepUntil.set && (now < r.keepUntil.Duration || r.membership == nil) {
		share = len(mine) // a neglected partition that was returned would be neglected again
	}
	surplus := len(mine) - share
	if surplus <= 0 || r.membership == nil && !r.standingBy {
		r.surplus.set = false
		return
	}
	if !r.surplus.set || r.memberJoined {
		r.leastSurplus = surplus
	}
	r.surplus.setOnce(now)
	r.leastSurplus = min(r.leastSurplus, surplus)
	if wait := r.surplus.Duration + r.settings.quiet - now; wait > 0 || !settled {
		r.readWithin(max(wait, r.settings.gap))
		return
	}
	slices.SortFunc(mine, func(a, b *work) int { return cmp.Compare(b.order, a.order) })
	for _, w := range mine[:r.leastSurplus] {
		w.reassign()
	}
	r.surplus.set = false
	if surplus > r.leastSurplus {
		r.readWithin(r.settings.quiet)
	}
}

// untaken lists free partitions that, by the plan, others should have acquired:
//
//   - mine have been free for a while, and there is room for them in this instance's share. The
//     others may have died.
//   - neglected ones have been free for so long that every member has read them twice, and the
//     number of free partitions did not change meanwhile. The member that should acquire them
//     cannot: its requests fail, or its function ignored the loss of the lease and still runs.
//     This instance acquires them beyond its share.
func (r *run) untaken(p plan.Plan, owners []string) (mine, neglected []int) {
	now, set := r.client.Now(), r.settings
	if free := p.Owned[plan.Nobody]; free != r.freeCount {
		r.freeCount, r.freeSince = free, now
	}
	room := p.Shares[r.me] - p.Owned[r.me] - len(p.Take)
	mayExceed := (r.membership != nil || r.standingBy) && now >= r.freeSince+set.neglected
	for i, o := range owners {
		free := r.table.rows[i].free
		if o != plan.Nobody || !free.set || slices.Contains(p.Take, i) {
			continue
		}
		switch age := now - free.Duration; {
		case len(mine) < room && age >= 2*set.quiet:
			mine = append(mine, i)
		case mayExceed && age >= set.neglected:
			neglected = append(neglected, i)
		}
	}
	return mine, neglected
}

// acquireAll makes an attempt at each of these partitions, a few at a time, and returns how many
// succeeded. When the backend fails, no further attempts begin.
func (r *run) acquireAll(partitions []int, beyondShare bool) int {
	if len(partitions) == 0 || r.backingOff() {
		return 0
	}
	timing.Shuffle(partitions)
	var acquired atomic.Int64
	var missed, failed atomic.Bool
	forEach(partitions, func(i int) bool {
		if r.ctx.Err() != nil {
			return false
		}
		h, err := r.table.acquire(r.ctx, i, r.lock, r.emit)
		if err == nil {
			r.begin(i, h, beyondShare)
			acquired.Add(1)
			return true
		}
		missed.Store(true)
		if !heldByAnother(err) {
			failed.Store(true)
			return false
		}
		r.table.rows[i].refuse(r.client.Now(), r.settings.quiet, r.settings.every)
		return true
	})
	if acquired.Load() > 0 || !failed.Load() {
		r.failedRounds = 0
	}
	switch {
	case failed.Load():
		r.backOff()
	case missed.Load():
		r.readWithin(timing.Jitter(r.settings.quiet, 0.5))
	}
	return int(acquired.Load())
}

// backOff begins a backoff after requests that failed. It grows from round to round.
func (r *run) backOff() {
	d := timing.Backoff(r.failedRounds, r.settings.quiet/2, r.settings.every/2)
	r.failedRounds++
	r.nextRequestAt = r.client.Now() + d
	r.readWithin(d)
}

// backingOff reports whether that backoff has not ended.
func (r *run) backingOff() bool {
	left := r.nextRequestAt - r.client.Now()
	if left > 0 {
		r.readWithin(left)
	}
	return left > 0
}

// watchOthers makes the next read follow what other instances do. This instance watches the notice
// lock, the member locks, since the others share the work of a member that leaves, and the
// partitions that are about to move. Of these only some: after a join nearly all of a group can be, and on
// some backends each watch is a request of its own. It reads more often while there are others, or free ones.
func (r *run) watchOthers(p plan.Plan, owners []string, settled bool) {
	r.watch(r.noticeLock(), true)
	free, moving := false, 0
	for i := range r.table.rows {
		row := &r.table.rows[i]
		member, o := i >= r.n, row.owner()
		if !member {
			o = owners[i]
		}
		wanted := o != plan.Nobody && o != r.me && (member || p.GivesUp(o))
		if wanted && !member {
			moving++
		}
		r.watch(r.table.names[i], wanted && (member || moving <= maxWatched))
		if left, ok := row.expiresIn(); ok && wanted {
			// Many instances wait for the same expiry: spread them a little.
			r.readWithin(left + time.Millisecond + timing.RandomDuration(10*time.Millisecond))
		}
		free = free || !member && o == plan.Nobody
	}
	if moving > maxWatched && r.client.Watches() {
		r.readWithin(timing.Jitter(r.settings.quiet, 0.5))
	}
	if free && settled {
		r.readWithin(timing.Backoff(r.freeReads, 2*r.settings.gap, r.settings.every))
		r.freeReads++
	}
}

// watch begins or ends the watch of a name, where the backend has a Waker.
func (r *run) watch(name string, wanted bool) {
	stop, watched := r.watches[name]
	switch {
	case wanted && !watched && r.client.Watches():
		r.watches[name] = r.client.Capabilities().Waker.Wake(name, "", func(up driver.Wakeup) {
			if up.Kind != driver.WakingEnded {
				r.readSoon()
			}
		})
	case !wanted && watched:
		stop()
		delete(r.watches, name)
	}
}

// forEach calls do for each value, maxRequests at a time, and returns when all calls have
// returned. Of the goroutines that call it, each stops when do returns false.
func forEach(values []int, do func(int) bool) {
	var calls sync.WaitGroup
	var next atomic.Int64
	for range min(maxRequests, len(values)) {
		calls.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(values)) && do(values[k]); k = next.Add(1) - 1 {
			}
		})
	}
	calls.Wait()
}
