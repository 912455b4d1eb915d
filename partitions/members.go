package partitions

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// join acquires a member lock, unless this instance has one or is not admitted yet. If all are taken, the
// instance stands by.
func (r *run) join() {
	if r.membership != nil && r.membership.Err() != nil {
		r.membership.Finish(r.ctx) // releaseMembership has begun it; this waits for it
		r.membership = nil
	}
	r.standingBy = false
	if r.membership != nil {
		return
	}
	if wait := r.trialLeft(); wait > 0 {
		r.readWithin(wait)
		return
	}
	if r.backingOff() {
		return
	}
	var free []int
	taken := true
	for i := r.n; i < len(r.table.rows); i++ {
		row := &r.table.rows[i]
		if row.owner() == plan.Nobody {
			free = append(free, i)
		}
		taken = taken && (row.known || driver.Lasting(row.err)) // one that was not read may be free
	}
	r.standingBy = taken && len(free) == 0
	for among := 8; len(free) > 0; among = 2 * min(among, len(free)) { // random, so that instances that start together try different ones
		k := timing.RandomInt(min(among, len(free)))
		h, err := r.table.acquire(r.ctx, free[k], withoutWork(r.lock), r.emit)
		if err == nil {
			r.membership = h
			r.goroutines.Go(func() { r.releaseMembership(h) })
			r.goroutines.Go(r.announce)
			return
		}
		if !heldByAnother(err) {
			r.backOff()
			return
		}
		r.table.rows[free[k]].refuse(r.client.Now(), r.settings.quiet, r.settings.every)
		free = slices.Delete(free, k, k+1)
	}
	r.readWithin(timing.Jitter(r.settings.quiet, 0.5))
}

// trialLeft returns how much longer this instance must live before it may become a member.
//
// The partitions of an instance that dies without releasing them are idle until their leases
// expire, so an instance in a crash loop would keep its share idle. A newcomer therefore acquires
// nothing, not even a member lock, before it has lived for a while. It does not wait if there is no
// other member, if no member owns a partition (all start at once), or if it owns partitions itself
// (it lost only its member lock).
func (r *run) trialLeft() time.Duration {
	now := r.client.Now()
	r.begun.setOnce(now)
	left := r.begun.Duration + r.settings.trial - now
	members := r.members()
	if left <= 0 || len(members) == 0 {
		return 0
	}
	othersWork := false
	for _, o := range r.owners() {
		if o == r.me {
			return 0
		}
		othersWork = othersWork || slices.Contains(members, o)
	}
	if !othersWork {
		return 0
	}
	return left
}

// releaseMembership releases the member lock as soon as it is lost or Run's context ends, because
// no work depends on it.
func (r *run) releaseMembership(h *engine.Hold) {
	<-h.Context().Done()
	h.Finish(h.Context())
	r.readSoon()
}

// noticeLock is the name of a lock that every member watches.
func (r *run) noticeLock() string { return r.table.prefix + "notice" }

// announce wakes the members: the release of the notice lock wakes all that watch it.
func (r *run) announce() {
	c := r.client
	if !c.Watches() {
		return
	}
	a := c.NewAcquisition(r.noticeLock(), withoutWork(r.lock), func(event.Event) {})
	h, err := c.TryAcquire(r.ctx, r.ctx, a, true)
	if err != nil {
		a.Abandon()
		return
	}
	h.Finish(r.ctx)
}

// members lists the live members, including this instance if it is one. A member that is late with
// the renewal of its member lock does not count: it keeps its partitions while their leases last,
// but no share of the free ones is reserved for it.
func (r *run) members() []string {
	var out []string
	listed := map[string]bool{r.me: true}
	if r.membership != nil { // join has checked that it is held
		out = append(out, r.me)
	}
	for i := r.n; i < len(r.table.rows); i++ {
		row := &r.table.rows[i]
		o := row.owner()
		if row.sinceRenewal() > max(r.settings.overdue, row.ttl/2) {
			continue
		}
		if o == plan.Unknown && row.known {
			o = fmt.Sprintf("%s%d", plan.Unknown, i)
		}
		if o != plan.Nobody && o != plan.Unknown && !listed[o] {
			listed[o] = true
			out = append(out, o)
		}
	}
	return out
}

// checkMembers reports whether the members are settled: no instance has joined for a while. Only
// then are partitions moved. Otherwise, when instances start together, the first of them would
// take too many. When one of n members leaves, those that stand by get the same time to replace it.
//
// If instances keep joining, free partitions do not wait forever: overdue reports that they have
// waited long enough.
func (r *run) checkMembers(members []string) (settled, overdue bool) {
	now, set := r.client.Now(), r.settings
	before := r.memberSince
	r.memberSince = make(map[string]time.Duration, len(members))
	last := now - set.quiet
	r.memberJoined = false
	for _, m := range members {
		since, known := before[m]
		if !known {
			since, r.memberJoined = now, true
		}
		r.memberSince[m] = since
		last = max(last, since)
	}
	r.membersChanged = r.memberJoined || len(members) != len(before)
	if len(members) < r.n && len(before) == r.n {
		r.vacant = moment{now, true}
	}
	if r.vacant.set {
		last = max(last, r.vacant.Duration)
	}
	wait := last + set.quiet - now
	if wait <= 0 {
		r.unsettled.set = false
		return true, false
	}
	r.unsettled.setOnce(now)
	r.readWithin(wait)
	return false, now >= r.unsettled.Duration+4*set.quiet
}
