package waiter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzWaiter has any events come in any order, and checks what must always hold.
func FuzzWaiter(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
	f.Fuzz(checkEvents)
}

func TestRandomEvents(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 1000
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(1, uint64(seed)))
		data := make([]byte, 10+rng.IntN(300))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if checkEvents(t, data); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checker drives a Waiter by random events, and knows what each of them obliges it to.
type checker struct {
	t    *testing.T
	w    *Waiter
	v    *world
	data []byte
	log  []string

	traits  Traits
	joined  bool
	over    bool
	blocked time.Duration // nothing may be sent before
	fails   int           // of reads, in a row
	slots   []checkedSlot
	retired map[driver.LeaseID]bool
}

// checkedSlot is what a slot must do.
type checkedSlot struct {
	own     bool
	asking  bool
	askedAt time.Duration
	id      driver.LeaseID
	doubt   InDoubt // of that ID
	refused bool
	alone   bool          // its record is damaged
	fails   int           // in a row
	damaged int           // the same, of this slot alone
	blocked time.Duration // nothing may be sent for it before
	owed    time.Duration // when a request must be due
	turn    time.Duration // when it must be due at the latest, whatever is sent before
	missed  bool          // a wake-up without a time must be followed
	since   int           // the latest read that was planned before it
	reads   int
	read    *Action
}

func (c *checker) next() int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b)
}

func (c *checker) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("at %v: %s\n%v", c.v.now, fmt.Sprintf(format, args...), c.log)
}

func (c *checker) logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%v: ", c.v.now)+fmt.Sprintf(format, args...))
}

func checkEvents(t *testing.T, data []byte) {
	c := &checker{t: t, data: data, retired: map[driver.LeaseID]bool{}}
	setup := c.next()
	n := 1
	if setup&8 > 0 {
		n = 3
	}
	// A LeaseManager's waiters, which repeat reads, have no slots.
	c.traits = Traits{Reads: setup&1 > 0, Rereads: setup&2 > 0 && n == 1, Queue: setup&4 > 0, Turn: driver.TurnLength}
	c.w, c.v = newWaiter(n, c.traits)
	c.v.rng = rand.New(rand.NewPCG(2, uint64(setup)))
	c.v.rounds = 1 + int64(setup>>4&3)
	c.slots = make([]checkedSlot, n)
	for i := range c.slots {
		c.slots[i].owed, c.slots[i].turn = Never, Never
	}
	c.w.settings.PollSet = setup&64 > 0
	if c.next()%2 == 0 { // like a backend that is cheap to ask
		c.w.settings.Poll = 100 * ms
	}
	if c.joined = setup&128 == 0; c.joined {
		c.w.Join()
	}
	for len(c.data) > 0 && !t.Failed() && !c.over {
		c.step()
		c.check()
	}
	if !c.over {
		c.leave()
	}
}

// step makes one event.
func (c *checker) step() {
	slot := c.next() % len(c.slots)
	s := &c.slots[slot]
	switch c.next() % 11 {
	case 0:
		c.v.now += time.Duration(c.next()) * ms
	case 1, 2: // until something is due
		_, at := c.w.Next()
		for i := range c.slots {
			if r := c.slots[i].read; r != nil {
				at = min(at, r.At)
			}
		}
		if at != Never {
			c.v.now = max(c.v.now, at)
		}
	case 3, 4:
		c.send()
	case 5:
		c.answer(slot)
	case 6:
		c.readResult(slot)
	case 7:
		turns := []time.Duration{0, 0, driver.TurnLength, time.Hour, nothingMissed, maybeMissed, wakingEnded, stale}
		c.wake(slot, turns[c.next()%len(turns)])
	case 8:
		c.logf("slot %d freed", slot)
		s.own, s.owed = false, min(s.owed, c.v.now)
		c.perform(c.w.SlotFreed(c.v.now, slot))
	case 9:
		c.v.crowded = c.next()%2 == 0
		if c.next()%4 == 0 && len(c.slots) > 1 {
			c.own(c.next())
		}
	case 10:
		if c.next()%16 == 0 {
			c.leave()
		}
	}
}

func (c *checker) own(bits int) {
	var held []int
	for i := range c.slots {
		if bits>>i&1 > 0 {
			held = append(held, i)
		}
	}
	for i := range c.slots {
		s, own := &c.slots[i], bits>>i&1 > 0 && len(held) < len(c.slots)
		if s.own && !own {
			s.owed = c.v.now
		}
		s.own, s.missed = own, s.missed && !own
	}
	c.logf("own %v", held)
	c.perform(c.w.Own(c.v.now, held))
}

func (c *checker) wake(slot int, turn time.Duration) {
	s := &c.slots[slot]
	c.logf("slot %d woken: %v", slot, turn)
	if in := c.w.slots[slot]; !in.refused || in.failed { // no answer has shown anything
		switch turn {
		case nothingMissed:
			turn = maybeMissed
		case stale:
			turn = 0
		}
	}
	switch {
	case s.own:
	case turn >= 0:
		s.turn = min(s.turn, c.v.now+min(turn, driver.MaxTurn))
	case turn == maybeMissed:
		s.missed, s.since = true, s.reads
	}
	c.perform(c.w.woken(c.v.now, slot, turn))
	if turn < 0 && turn != stale && c.w.slots[slot].watching != (turn != wakingEnded) {
		c.fail("slot %d: watching is %v", slot, c.w.slots[slot].watching)
	}
}

func (c *checker) send() {
	slot, at := c.w.Next()
	if at > c.v.now {
		return
	}
	s := &c.slots[slot]
	id, queueFor, actions := c.w.Send(c.v.now, slot)
	c.logf("request for slot %d", slot)
	switch {
	case s.asking:
		c.fail("two requests for slot %d at a time", slot)
	case s.own:
		c.fail("a request for slot %d, which is our own", slot)
	case c.v.now < max(c.blocked, s.blocked):
		c.fail("a request before the backoff of %v is over", max(c.blocked, s.blocked))
	case c.retired[id]:
		c.fail("an ID is used again")
	case s.doubt.Any && id != s.id:
		c.fail("another ID while a request is in doubt")
	case queueFor > 0 != (c.joined && len(c.slots) == 1 && (c.traits.Queue || c.w.besideQueue(&c.w.slots[0]) || c.w.slots[0].position > 0)):
		c.fail("a position for %v", queueFor)
	}
	if s.turn <= c.v.now {
		s.turn = Never
	}
	s.owed = Never
	s.asking, s.askedAt, s.id, s.missed = true, c.v.now, id, false
	c.perform(actions)
}

func (c *checker) answer(slot int) {
	s := &c.slots[slot]
	if !s.asking {
		return
	}
	kind := c.next()
	a := Answer{Outcome: Outcome(1 + kind%4), IDReleased: kind>>3&7 == 0, OnlySlot: kind>>6 > 2}
	if a.Outcome == Refused && kind>>6 > 0 {
		r := c.record()
		a.Holder, a.Reserved = &r, kind>>6 == 1
	}
	c.logf("slot %d answered: %+v", slot, a.Outcome)
	s.asking = false
	s.alone = a.Outcome > Refused && a.OnlySlot && len(c.slots) > 1
	if a.Outcome > Failed {
		s.doubt.Note(s.askedAt + ttl)
	}
	actions := c.w.Answered(c.v.now, slot, a)
	switch {
	case a.Outcome == Refused:
		s.refused, s.fails, s.damaged, c.fails = true, 0, 0, 0
	case s.alone:
		s.blocked = c.v.now + c.leastBackoff(s.damaged)
		s.damaged++
	default:
		c.block(s.fails)
		s.fails++
	}
	if a.IDReleased || a.Outcome == TooLate {
		c.retired[s.id] = true
	}
	c.perform(actions)
	if c.retired[s.id] && s.doubt.Any {
		c.fail("an ID was given up without a cleanup")
	}
}

// block notes the least backoff after n failures.
func (c *checker) block(n int) { c.blocked = c.v.now + c.leastBackoff(n) }

func (c *checker) leastBackoff(n int) time.Duration {
	d := c.w.settings.Delay(n) * 3 / 4
	if c.w.settings.PollSet {
		d = min(d, c.w.settings.Poll*4/5)
	}
	return max(ms, d)
}

func (c *checker) record() driver.Record {
	kind := c.next()
	r := holder("a", uint64(kind&1), time.Duration(kind>>4)*3*time.Second)
	r.RemainingKnown, r.Broken = kind&2 == 0, kind&12 == 12
	r.Position = kind >> 2 & 1
	r.Waiters = r.Position + kind>>5&1
	return r
}

func (c *checker) readResult(slot int) {
	s := &c.slots[slot]
	if s.read == nil || s.read.At > c.v.now {
		return
	}
	number, failed, r := s.read.Number, c.next()%4 == 0, c.record()
	if c.next()%4 == 0 {
		r.State = driver.StateFree
	}
	shown, actions := c.w.Read(c.v.now, slot, number, r, failed)
	c.logf("slot %d: read %d has shown %d", slot, number, shown)
	if shown == Nothing {
		c.fail("the planned read of slot %d does not count", slot)
	}
	if again, _ := c.w.Read(c.v.now, slot, number, r, failed); again != Nothing {
		c.fail("slot %d: a result counts twice", slot)
	}
	s.read = nil
	switch shown {
	case Failure:
		c.block(c.fails)
		c.fails++
	case Free:
		s.owed = min(s.owed, c.v.now)
		fallthrough
	case Held:
		if number > s.since {
			s.missed = false
		}
		c.fails = 0
	}
	c.perform(actions)
}

func (c *checker) leave() {
	for i := range c.slots {
		if c.slots[i].asking {
			return
		}
	}
	granted := c.next()%len(c.slots) - 1
	c.logf("leave, granted %d", granted)
	actions := c.w.Leave(granted)
	c.perform(actions)
	for i, s := range c.slots {
		if s.read != nil || i != granted && s.doubt.Any {
			c.fail("slot %d: a read, or a request in doubt, is left", i)
		}
	}
	if _, at := c.w.Next(); at != Never {
		c.fail("a request is due after the end")
	}
	c.over = true
}

func (c *checker) perform(actions []Action) {
	for _, a := range actions {
		s := &c.slots[a.Slot]
		switch a.Kind {
		case Read:
			s.reads, s.read = a.Number, &a
			if !c.joined || !c.traits.Reads || a.At < c.v.now && a.At < c.blocked {
				c.fail("a read at %v", a.At)
			}
		case DropRead:
			if s.read == nil {
				c.fail("no read to drop")
			}
			s.read = nil
		case CleanUp:
			if !s.doubt.Any || a.ID != s.id || a.At < s.doubt.Until {
				c.fail("a cleanup until %v, in doubt until %v", a.At, s.doubt.Until)
			}
			c.retired[a.ID], s.doubt = true, InDoubt{}
		}
	}
}

// check checks what is due after an event.
func (c *checker) check() {
	if c.over {
		return
	}
	for i := range c.slots {
		s := &c.slots[i]
		due := c.w.dueAt(i)
		switch {
		case s.asking, s.own:
			if due != Never {
				c.fail("slot %d: a request at %v", i, due)
			}
			continue
		case due < max(c.blocked, s.blocked):
			c.fail("slot %d: a request at %v, in the backoff until %v", i, due, max(c.blocked, s.blocked))
		case s.read != nil && s.read.At < max(c.blocked, s.blocked):
			c.fail("slot %d: a read at %v, in the backoff until %v", i, s.read.At, max(c.blocked, s.blocked))
		}
		soon := max(c.v.now, c.w.notBefore(&c.w.slots[i]))
		if owed := min(s.owed, s.turn); owed < Never && due > max(owed, soon) {
			c.fail("slot %d: a request at %v, owed at %v", i, due, owed)
		}
		if s.missed && due > soon && s.turn == Never && (s.read == nil || s.read.At > soon) {
			c.fail("slot %d: a wake-up is lost: a request at %v", i, due)
		}
		first := due
		if s.read != nil {
			first = min(first, s.read.At)
		}
		if most := max(3*poll, watched)*6/5 + 1; s.refused && !s.alone && first > soon+most {
			c.fail("slot %d: nothing before %v", i, first)
		}
	}
	if c.w.retryAt > max(c.v.now, c.blocked)+poll*6/5 {
		c.fail("a backoff until %v", c.w.retryAt)
	}
}
