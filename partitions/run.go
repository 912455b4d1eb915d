package partitions

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// partitionCalls bounds the attempts under way at once, partitionReleases the releases.
const (
	partitionCalls    = 16
	partitionReleases = 64
)

// sharing is one Run: this instance among the others. One goroutine looks, joins,
// takes and gives back; each partition's work has another.
type sharing struct {
	*Partitions
	ctx      context.Context   // of Run; ends also with the client
	me       string            // the owner text of this instance's locks
	lock     settings.Settings // of a partition's lock
	table    *table
	wake     chan struct{} // capacity 1: look soon
	releases chan struct{} // one place for each release under way
	works    sync.WaitGroup

	mu    sync.Mutex // never held across I/O or a caller's function
	owned map[int]*work
	taken uint64 // partitions so far

	// The rest belongs to Run's goroutine.
	seat       *engine.Hold // this instance's place among the members, or nil
	standingBy bool         // there was none for it
	alive      moment       // when it first read the group's records
	failures   int          // looks in a row

	misses    int           // looks in a row whose attempts failed
	attemptAt time.Duration // when the next may be made

	reported    []string      // the records of the last report that they cannot be read
	reportAgain time.Duration // when that is due

	lookAgain time.Duration
	watches   map[string]func() // by name

	joined    map[string]time.Duration // the members of the last look, and when each was first seen
	joining   bool                     // it showed one that was not there before
	changed   bool                     // or that one was gone
	vacant    moment                   // when a place became free where none was
	unsettled moment                   // since when partitions wait for the members to be settled
	surplus   moment                   // since when this instance owns too many
	least     int                      // how many too many, at every look since then
	extra     moment                   // until when it keeps more than its share
	free      int                      // how many partitions were free at the last look
	still     time.Duration            // since when there have been so many
	unclaimed int                      // looks in a row that showed free partitions, which others are to take
}

// moment is a time of the client's clock, or none.
type moment struct {
	time.Duration
	set bool
}

func (m *moment) first(now time.Duration) {
	if !m.set {
		m.Duration, m.set = now, true
	}
}

// counter hands out 0, 1, 2, …
type counter struct{ n atomic.Int64 }

func (c *counter) take() int { return int(c.n.Add(1)) - 1 }

func newSharing(ctx context.Context, p *Partitions) *sharing {
	s := &sharing{
		Partitions: p, ctx: ctx, me: instanceOwner(p.settings.Owner, engine.NewID()), lock: p.settings.Settings,
		wake: make(chan struct{}, 1), releases: make(chan struct{}, partitionReleases),
		owned: map[int]*work{}, joined: map[string]time.Duration{}, watches: map[string]func(){},
	}
	s.lock.Owner = s.me
	s.table = newTable(p.client, p.group, p.n, 12*p.settings.every, s.own)
	return s
}

// run takes part until the context ends.
func (s *sharing) run() {
	defer s.leave()
	for s.ctx.Err() == nil {
		s.step()
		s.rest()
	}
}

// leave ends this instance's part. The member's place goes at once, so that the others
// count on one less while functions are still returning.
func (s *sharing) leave() {
	for _, stop := range s.watches {
		stop()
	}
	s.works.Wait()
}

// rest waits until it is time to look again.
func (s *sharing) rest() {
	timer := time.NewTimer(s.settings.gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return
	}
	timer.Reset(max(s.lookAgain-s.settings.gap, 0))
	select {
	case <-timer.C:
	case <-s.wake:
	case <-s.ctx.Done():
	}
}

// rouse has the next look come soon.
func (s *sharing) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// within has the next look come in at most d.
func (s *sharing) within(d time.Duration) { s.lookAgain = min(s.lookAgain, max(d, 0)) }

// step looks once, and does what is to be done.
func (s *sharing) step() {
	set := s.settings
	s.lookAgain = clock.Jitter(set.every, 0.2)
	if err := s.table.look(s.ctx, set.RequestTimeout, max(set.RequestTimeout, set.every)); err != nil {
		if s.ctx.Err() == nil {
			s.emit(event.Event{Type: event.Error, Name: s.group, Owner: s.me, Op: "inspect", Err: err, Time: time.Now()})
		}
		s.within(clock.Backoff(s.failures, set.quiet, set.every))
		s.failures++
		return
	}
	s.failures = 0
	s.reportUnread()
	s.sit()
	members := s.members()
	settled, patient := s.settled(members)
	owners := s.owners()
	plan := plan.New(s.me, members, owners)
	s.giveBack(plan.Shares[s.me], settled)
	if !settled || len(plan.Take) > 0 && !s.resting() {
		s.unclaimed = 0
	}
	if settled || !patient {
		mine, neglected := s.leftOver(plan, owners)
		s.takeAll(append(plan.Take, mine...), false)
		if s.takeAll(neglected, true) > 0 {
			s.extra = moment{s.client.Now() + set.extra, true}
		}
	}
	s.attend(plan, s.owners(), settled)
	s.table.calm = settled && !s.changed && plan.Even()
}

// reportUnread reports the records that a look could not read: when they are others than
// before, and again and again. Nobody takes them.
func (s *sharing) reportUnread() {
	bad, now := s.table.unread, s.client.Now()
	if len(bad.Names) == 0 {
		s.reported = nil
		return
	}
	if slices.Equal(bad.Names, s.reported) && now < s.reportAgain {
		return
	}
	s.reported, s.reportAgain = bad.Names, now+s.settings.extra
	err := fmt.Errorf("holdfast: partitions of %q: records that cannot be read: %s; the first error: %w", s.group, bad.List(), bad.First)
	s.emit(event.Event{Type: event.Error, Name: s.group, Owner: s.me, Op: "inspect", Err: err, Time: time.Now()})
}

// owners tells of each partition whose it is. Of its own this instance knows better than
// what it has read; those that it is stopping work on are its own while it holds them.
func (s *sharing) owners() []string {
	out := make([]string, s.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range out {
		out[i] = s.table.rows[i].owner()
		w := s.owned[i]
		switch {
		case w != nil && w.hold.LeaseErr() == nil:
			out[i] = s.me
		case out[i] == s.me:
			out[i] = plan.Stranger // a request in doubt, that is being cleaned up
		case w != nil && out[i] == plan.Nobody:
			out[i] = plan.Stranger // lost, and the function has not returned: for others to take
		}
	}
	return out
}

// own tells whether this instance holds the lock of a row of the table.
func (s *sharing) own(row int) (string, bool) {
	if row >= s.n {
		return s.me, s.seat != nil && s.seat.Name() == s.table.names[row]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.owned[row]
	return s.me, w != nil && w.hold.LeaseErr() == nil
}

// giveBack stops work on what is more than this instance's share: on those partitions first
// that it took last, and last of all on those that others could not take. It acts on nothing
// that it has not seen for a while.
func (s *sharing) giveBack(share int, settled bool) {
	mine := s.live()
	now := s.client.Now()
	if s.changed {
		s.extra.set = false // who can take what may have changed
	}
	if s.extra.set && (now < s.extra.Duration || s.seat == nil) {
		share = len(mine) // to return it would only have it neglected again
	}
	more := len(mine) - share
	if more <= 0 || s.seat == nil && !s.standingBy {
		s.surplus.set = false
		return
	}
	if !s.surplus.set || s.joining {
		s.least = more
	}
	s.surplus.first(now)
	s.least = min(s.least, more)
	if wait := s.surplus.Duration + s.settings.quiet - now; wait > 0 || !settled {
		s.within(max(wait, s.settings.gap))
		return
	}
	slices.SortFunc(mine, func(a, b *work) int { return cmp.Compare(b.order, a.order) })
	for _, w := range mine[:s.least] {
		w.giveBack()
	}
	s.surplus.set = false
	if more > s.least {
		s.within(s.settings.quiet)
	}
}

// leftOver lists free partitions that were to be taken by others. Those that have been free
// for a while this instance takes if it has room in its share: the others may have died.
//
// It takes more than its share of what is neglected: what has been free, while no other was
// taken either, for so long that every member has looked twice. Whoever it is dealt to
// cannot take it: a function that ignored the loss of its lease is still at work on it
// there, or attempts fail there.
func (s *sharing) leftOver(p plan.Plan, owners []string) (mine, neglected []int) {
	now, set := s.client.Now(), s.settings
	if free := p.Owned[plan.Nobody]; free != s.free {
		s.free, s.still = free, now
	}
	room := p.Shares[s.me] - p.Owned[s.me] - len(p.Take)
	patient := s.seat == nil && !s.standingBy || now < s.still+set.neglect
	for i, o := range owners {
		free := s.table.rows[i].free
		if o != plan.Nobody || !free.set || slices.Contains(p.Take, i) {
			continue
		}
		switch age := now - free.Duration; {
		case len(mine) < room && age >= 2*set.quiet:
			mine = append(mine, i)
		case !patient && age >= set.neglect:
			neglected = append(neglected, i)
		}
	}
	return mine, neglected
}

// takeAll makes an attempt at each of these partitions, a few at a time, and returns how
// many it got. A backend that fails is left alone for a while.
func (s *sharing) takeAll(partitions []int, extra bool) int {
	if len(partitions) == 0 || s.resting() {
		return 0
	}
	rand.Shuffle(len(partitions), func(i, j int) { partitions[i], partitions[j] = partitions[j], partitions[i] })
	var calls sync.WaitGroup
	var next counter
	var taken atomic.Int64
	var missed, failed atomic.Bool
	for range min(partitionCalls, len(partitions)) {
		calls.Go(func() {
			for k := next.take(); k < len(partitions) && s.ctx.Err() == nil; k = next.take() {
				h, err := s.table.take(s.ctx, partitions[k], s.lock, s.emit)
				if err == nil {
					s.begin(partitions[k], h, extra)
					taken.Add(1)
					continue
				}
				missed.Store(true)
				if !refused(err) {
					failed.Store(true)
					return
				}
			}
		})
	}
	calls.Wait()
	if taken.Load() > 0 || !failed.Load() {
		s.misses = 0
	}
	switch {
	case failed.Load():
		s.leaveAlone()
	case missed.Load():
		s.within(clock.Jitter(s.settings.quiet, 0.5))
	}
	return int(taken.Load())
}

// leaveAlone has no attempt made for a while, longer each time: the backend fails them.
func (s *sharing) leaveAlone() {
	d := clock.Backoff(s.misses, s.settings.quiet/2, s.settings.every/2)
	s.misses++
	s.attemptAt = s.client.Now() + d
	s.within(d)
}

// resting reports whether it is too early for an attempt after one that failed.
func (s *sharing) resting() bool {
	left := s.attemptAt - s.client.Now()
	if left > 0 {
		s.within(left)
	}
	return left > 0
}

// attend has this instance look again when something is to be expected: it watches the
// bell, the places of the members, since a share falls to the others when one leaves,
// and the partitions that are about to move. What is free will be taken soon, or later.
func (s *sharing) attend(p plan.Plan, owners []string, settled bool) {
	s.watch(s.bell(), true)
	free := false
	for i := range s.table.rows {
		row := &s.table.rows[i]
		place, o := i >= s.n, row.owner()
		if !place {
			o = owners[i]
		}
		wanted := o != plan.Nobody && o != s.me && (place || p.Moves(o))
		s.watch(s.table.names[i], wanted)
		if left, ok := row.endsIn(); ok && wanted {
			// Many wait for the same expiry: spread them a little.
			s.within(left + time.Millisecond + rand.N(10*time.Millisecond))
		}
		free = free || !place && o == plan.Nobody
	}
	if free && settled {
		s.within(clock.Backoff(s.unclaimed, 2*s.settings.gap, s.settings.every))
		s.unclaimed++
	}
}

// watch begins or stops to watch a name, where the backend can.
func (s *sharing) watch(name string, wanted bool) {
	w := s.client.Capabilities().Watcher
	stop, watched := s.watches[name]
	switch {
	case wanted && !watched && w != nil:
		s.watches[name] = w.Watch(name, s.rouse)
	case !wanted && watched:
		stop()
		delete(s.watches, name)
	}
}
