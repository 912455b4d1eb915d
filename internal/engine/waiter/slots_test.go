package waiter

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// dueNow lists the slots that are asked now, one after another, if none is granted.
func (s *script) dueNow(a Answer) (asked []int) {
	for range s.slots {
		slot, at := s.Next()
		if at > s.v.now {
			break
		}
		s.send(slot)
		s.Answered(s.v.now, slot, a)
		asked = append(asked, slot)
	}
	return asked
}

func TestSlotsAreAskedInTurn(t *testing.T) {
	s := newScript(t, 4, Traits{})
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{2, 3, 0, 1}) {
		t.Errorf("asked %v, from a random slot on", got)
	}
	s.at(time.Second).want(s.woken(s.v.now, 3, 0), "| 1s")
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{3}) {
		t.Errorf("asked %v", got)
	}
}

// A failure ends the round, since the backend may be ill. Its slot comes last in the next.
func TestFailureOfOneSlot(t *testing.T) {
	s := newScript(t, 3, Traits{})
	if got := s.dueNow(Answer{Outcome: Unknown}); !slices.Equal(got, []int{1}) {
		t.Errorf("asked %v", got)
	}
	s.want(nil, "| 300ms")
	s.at(300 * ms)
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{2, 0, 1}) {
		t.Errorf("asked %v", got)
	}
	s.at(1300 * ms).send(2)
	s.want(s.Answered(s.v.now, 2, Answer{Outcome: Unknown}), "| 1.6s") // then all are asked
	s.at(1600 * ms)
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{1, 0, 2}) {
		t.Errorf("asked %v", got)
	}
}

// A damaged record concerns its slot alone.
func TestDamagedSlot(t *testing.T) {
	s := newScript(t, 2, Traits{})
	if got := s.dueNow(Answer{Outcome: Failed, OnlySlot: true}); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("asked %v", got)
	}
	s.want(nil, "| 5s")
	s.Start(0)
	s.send(0)
	s.want(s.Answered(0, 0, refused(holder("a", 1, ttl))), "report a 1 | 0s")
	s = newScript(t, 1, Traits{})
	s.send(0)
	s.answer(Answer{Outcome: Failed, OnlySlot: true}, "| 300ms") // of a lock without slots: a failure like others
}

// Requests for a slot whose record is damaged become rarer, also where polls are frequent, and no wake-up makes them come
// earlier.
func TestBackoffOfADamagedSlot(t *testing.T) {
	s := newScript(t, 2, Traits{})
	s.settings.Poll = 100 * ms
	s.send(0)
	s.Answered(0, 0, refused(holder("a", 1, time.Hour)))
	s.slots[0].planned = time.Hour
	for _, want := range []string{"300ms", "900ms", "2.1s", "4.5s", "7s"} {
		s.send(1)
		s.wake1(maybeMissed)
		s.Answered(s.v.now, 1, Answer{Outcome: Failed, OnlySlot: true}) // the wake-up came while the request was under way
		s.want(nil, "| "+want)
		s.wake1(maybeMissed)
		s.wake1(0)
		s.want(s.SlotFreed(s.v.now, 1), "| "+want)
		_, s.v.now = s.Next()
	}
	s.send(1)
	s.Answered(s.v.now, 1, refused(holder("a", 1, time.Hour)))
	s.send(1)
	s.Answered(s.v.now, 1, Answer{Outcome: Failed, OnlySlot: true})
	s.want(nil, "| 7.3s") // it was answered meanwhile
}

// wake1 wakes the second slot.
func (s *script) wake1(turn time.Duration) { s.woken(s.v.now, 1, turn) }

// A wake-up that waits for its read is not forgotten when a failure drops the read: a request follows the backoff.
func TestFailureKeepsWakeUps(t *testing.T) {
	s := newScript(t, 2, Traits{Reads: true})
	s.send(0)
	s.Answered(0, 0, refused(holder("a", 1, ttl)))
	s.at(time.Second).send(1)
	s.want(s.woken(s.v.now, 0, maybeMissed), "read 1s | 30.006s")
	s.Answered(s.v.now, 1, Answer{Outcome: Unknown})
	s.woken(s.v.now, 0, wakingEnded) // plans the slot's polls anew
	if due := s.dueAt(0); due != 1300*ms {
		t.Errorf("a request at %v, want 1.3s", due)
	}
}

func TestOwnSlots(t *testing.T) {
	s := newScript(t, 3, Traits{Reads: true})
	s.want(s.Own(0, []int{0, 1}), "| 0s")
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{2}) {
		t.Errorf("asked %v", got)
	}
	s.want(s.woken(0, 1, 0), "| 30.006s")
	s.want(s.woken(0, 1, maybeMissed), "| 30.006s")
	s.want(s.Own(0, []int{0, 1, 2, 7}), "| 0s") // all: then each is asked
	s.want(s.Own(0, []int{0, 2}), "drop read | 0s")
	if got := s.dueNow(refused(holder("a", 1, ttl))); !slices.Equal(got, []int{1}) {
		t.Errorf("asked %v", got)
	}
	s.at(time.Second).want(s.SlotFreed(s.v.now, 0), "| 0s")
	if got := s.dueNow(refused(holder("b", 1, ttl))); !slices.Equal(got, []int{0}) {
		t.Errorf("asked %v", got)
	}
	s.want(s.SlotFreed(s.v.now, 5), "| 30.006s") // this waiter may not take it
	s.want(s.Own(s.v.now, []int{1, 2}), "drop read | 31.006s")
	s.want(s.woken(s.v.now, 1, wakingEnded), "| 31.006s")
	s.want(s.Own(s.v.now, []int{2}), "| 1s") // freed
}

// Of the slots that are due, one read drops those that are held.
func TestInspected(t *testing.T) {
	s := newScript(t, 3, Traits{Reads: true})
	s.send(1)
	s.Answered(0, 1, refused(holder("a", 1, ttl)))
	if due := s.Due(0); !slices.Equal(due, []int{0, 2}) {
		t.Errorf("due: %v", due)
	}
	s.Inspected(0, 0, holder("b", 1, ttl), false)
	s.Inspected(0, 2, driver.Record{}, true)
	if due := s.Due(0); !slices.Equal(due, []int{2}) {
		t.Errorf("due: %v", due)
	}
	s.send(2)
	s.Answered(0, 2, Answer{Outcome: Unknown})
	s.at(300 * ms)
	if shown, _ := s.Inspected(s.v.now, 2, holder("c", 1, ttl), false); shown != Free {
		t.Error("the holder may be this caller's own request")
	}
}

// A read that shows readers leads to a request of a caller that may join them, and of no other.
func TestReadersAreJoined(t *testing.T) {
	for _, joins := range []bool{false, true} {
		s := newScript(t, 1, Traits{Reads: true, Shared: joins})
		s.send(0)
		s.Answered(0, 0, refused(holder("writer", 1, ttl)))
		r := holder("reader", 2, ttl)
		r.Holders = []driver.Holder{{Owner: "reader", Token: 2}}
		if shown, _ := s.at(time.Second).Inspected(s.v.now, 0, r, false); (shown == Free) != joins {
			t.Errorf("a caller that joins readers (%v) was shown %d", joins, shown)
		}
		s.woken(s.v.now, 0, nothingMissed)
		r.Position, r.Waiters = 2, 2
		if shown, _ := s.Inspected(s.v.now, 0, r, false); shown != Held {
			t.Errorf("a caller that is woken in its turn was shown %d", shown)
		}
	}
}

// A read shows a holder, where the lock was reserved before: then the time left is the holder's.
func TestInspectedAfterAReservation(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	r := holder("", 0, 100*ms)
	r.Position = 2
	s.send(0)
	s.answer(Answer{Outcome: Refused, Holder: &r, Reserved: true}, "read 100ms | 101ms")
	r = holder("a", 1, 200*ms)
	r.Position = 2
	s.Inspected(0, 0, r, false)
	s.want(nil, "| 401ms")
}

// All but the granted request are cleaned up.
func TestLeaveAfterAGrant(t *testing.T) {
	s := newScript(t, 3, Traits{})
	for slot := range 3 {
		s.send(slot)
		s.Answered(0, slot, Answer{Outcome: Unknown})
	}
	s.want(s.Leave(1), "clean up id1 until 30s, clean up id3 until 30s | never")
	if d := s.InDoubt(1); !d.Any || d.Until != ttl {
		t.Errorf("in doubt: %+v", d)
	}
}

func TestUnnamedHolders(t *testing.T) {
	s := newScript(t, 2, Traits{})
	if _, ok := s.Unidentified(); ok {
		t.Error("no holder was seen")
	}
	s.send(0)
	s.Answered(0, 0, Answer{Outcome: Refused, Reserved: true})
	if _, ok := s.Unidentified(); ok {
		t.Error("a reservation has no holder")
	}
	s.send(1)
	s.want(s.Answered(0, 1, Answer{Outcome: Refused}), "| 2.5s")
	if slot, ok := s.Unidentified(); !ok || slot != 1 {
		t.Errorf("slot %d, %v", slot, ok)
	}
	s.want(s.Identified(1, "", 0), "report  0 | 2.5s")
	s.want(s.Identified(1, "", 0), "| 2.5s")
	if _, ok := s.Unidentified(); ok {
		t.Error("a second holder is read")
	}
	s.at(40 * time.Second).send(1)
	s.want(s.Answered(s.v.now, 1, Answer{Outcome: Refused}), "| 2.5s")
	if s.slots[1].planned != 45*time.Second {
		t.Errorf("planned for %v", s.slots[1].planned)
	}
}

func TestNotices(t *testing.T) {
	s := newScript(t, 1, Traits{})
	s.held("report a 1 | 2.5s")
	if s.NoticeAt() != time.Second {
		t.Errorf("the first notice at %v", s.NoticeAt())
	}
	logs := 0
	notice := func(logged bool) func(string, uint64, time.Duration) bool {
		return func(owner string, token uint64, waited time.Duration) bool {
			if logs++; owner != "a" || token != 1 || waited != time.Second {
				t.Errorf("%q, %d, %v", owner, token, waited)
			}
			return logged
		}
	}
	s.Notice(999*ms, notice(true))
	if logs > 0 {
		t.Error("a notice before a second is over")
	}
	if s.Notice(time.Second, notice(false)); s.NoticeAt() != 3*time.Second {
		t.Errorf("a notice that was left out is due at %v", s.NoticeAt())
	}
	s.notice.next = time.Second
	if s.Notice(time.Second, notice(true)); s.NoticeAt() != Never || logs != 2 {
		t.Error("the same holder is noticed again")
	}
	s.at(2500 * ms).send(0)
	s.answer(refused(holder("b", 2, ttl)), "report b 2 | 5s")
	if s.NoticeAt() != 3*time.Second {
		t.Errorf("another holder is noticed at %v", s.NoticeAt())
	}
	s.at(5 * time.Second).send(0)
	s.answer(Answer{Outcome: Unknown}, "| 5.3s")
	if s.NoticeAt() != Never {
		t.Error("a notice although nobody knows whether there is a holder")
	}
}
