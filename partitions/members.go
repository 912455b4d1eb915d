package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
)

// sit sees to this instance's place among the members.
func (s *sharing) sit() {
	if s.seat != nil && s.seat.Err() != nil {
		s.seat.Finish(s.ctx) // keepSeat has begun to
		s.seat = nil
	}
	s.standingBy = false
	if s.seat != nil {
		return
	}
	if wait := s.onTrial(); wait > 0 {
		s.within(wait)
		return
	}
	if s.resting() {
		return
	}
	var free []int
	for i := s.n; i < len(s.table.rows); i++ {
		if s.table.rows[i].owner() == plan.Nobody {
			free = append(free, i)
		}
	}
	s.standingBy = len(free) == 0
	mine := s.lock
	mine.Data, mine.Overrun = nil, nil
	for among := 8; len(free) > 0; among *= 2 { // who starts together should not meet at the first
		k := rand.IntN(min(among, len(free)))
		h, err := s.table.take(s.ctx, free[k], mine, s.emit)
		if err == nil {
			s.seat = h
			s.works.Go(func() { s.keepSeat(h) })
			s.works.Go(s.ring)
			return
		}
		if !refused(err) {
			s.leaveAlone()
			return
		}
		free = slices.Delete(free, k, k+1)
	}
	s.within(clock.Jitter(s.settings.quiet, 0.5))
}

// onTrial returns how long this instance still has to live before it may become a member.
//
// What an instance holds that dies without a release is nobody's until its leases expire,
// so one that crashes again and again would keep its share from being worked on. While
// others do the work, a newcomer therefore takes nothing, not even a place, before it has
// lived for a while. It does not wait if there is no other member, or no partition has an
// owner (all start at once), or it has partitions itself (only its place was lost).
func (s *sharing) onTrial() time.Duration {
	now := s.client.Now()
	s.alive.first(now)
	left := s.alive.Duration + s.settings.trial - now
	members := s.members()
	if left <= 0 || len(members) == 0 {
		return 0
	}
	others := false
	for _, o := range s.owners() {
		if o == s.me {
			return 0
		}
		others = others || slices.Contains(members, o)
	}
	if !others {
		return 0
	}
	return left
}

// keepSeat releases a place when it is lost, or Run's context ends: at once, since no
// work goes on under it.
func (s *sharing) keepSeat(h *engine.Hold) {
	<-h.Context().Done()
	h.Finish(h.Context())
	s.rouse()
}

// bell is a lock that every member watches.
func (s *sharing) bell() string { return s.table.prefix + "bell" }

// ring wakes the members, as a release wakes who watches.
func (s *sharing) ring() {
	c := s.client
	if c.Capabilities().Watcher == nil {
		return
	}
	quiet := s.lock
	quiet.Data, quiet.Overrun = nil, nil
	a := c.NewAcquisition(s.bell(), quiet, func(event.Event) {})
	h, err := c.TryAcquire(s.ctx, s.ctx, a, true)
	if err != nil {
		a.Abandon()
		return
	}
	h.Finish(s.ctx)
}

// members lists the live members, this instance included if it has a place. One that is
// late with the renewal of its place does not count: it keeps what it has while its leases
// last, but no share of what is free is reserved for it.
func (s *sharing) members() []string {
	var out []string
	there := map[string]bool{s.me: true}
	if s.seat != nil { // sit has looked whether it is held
		out = append(out, s.me)
	}
	for i := s.n; i < len(s.table.rows); i++ {
		row := &s.table.rows[i]
		o := row.owner()
		if row.notRenewed() > max(s.settings.overdue, row.rec.TTL/2) {
			continue
		}
		if o == plan.Stranger && row.known {
			o = fmt.Sprintf("%s%d", plan.Stranger, i)
		}
		if o != plan.Nobody && o != plan.Stranger && !there[o] {
			there[o] = true
			out = append(out, o)
		}
	}
	return out
}

// settled reports whether no instance has joined for a while, so that partitions can
// be moved: of instances that start together, the first would else take too many. A
// place that is vacant where all were taken is left to those who stand by, too. If
// they keep coming, what is free does not wait for ever: that is not patient.
func (s *sharing) settled(members []string) (settled, patient bool) {
	now, set := s.client.Now(), s.settings
	before := s.joined
	s.joined = make(map[string]time.Duration, len(members))
	last := now - set.quiet
	s.joining = false
	for _, m := range members {
		since, known := before[m]
		if !known {
			since, s.joining = now, true
		}
		s.joined[m] = since
		last = max(last, since)
	}
	s.changed = s.joining || len(members) != len(before)
	if len(members) < s.n && len(before) == s.n {
		s.vacant.Duration, s.vacant.set = now, true
	}
	if s.vacant.set {
		last = max(last, s.vacant.Duration)
	}
	wait := last + set.quiet - now
	if wait <= 0 {
		s.unsettled.set = false
		return true, true
	}
	s.unsettled.first(now)
	s.within(wait)
	return false, now < s.unsettled.Duration+4*set.quiet
}
