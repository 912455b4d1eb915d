package waiter

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The first request of a wait is sent before there is a watch. It met a driver whose stream is blind: nothing wakes its position.
func TestFirstRequestMetABlindDriver(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1 | 2.5s")
	s.at(100*ms).wake(wakingEnded, "| 2.5s") // what Add reports of a blind stream
	s.at(time.Second).wake(maybeMissed, "| 1s")
}

// The stream was opened between that request and the watch.
func TestOpenedBetweenRequestAndWatch(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1 | 2.5s")
	s.at(time.Second)
	s.want(s.Woken(s.v.now, 0, driver.Wakeup{Kind: driver.WakingBegan, Ago: 500 * ms}), "| 1s")
}

// The end of waking is reported while a request is under way, which the driver took for one that polls.
func TestWakingEndedDuringARequest(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1 | 2.5s")
	s.wake(nothingMissed, "| 20s")
	s.at(time.Second).send(0)
	s.wake(wakingEnded, "| never")
	s.answer(refused(holder("a", 1, time.Hour)), "| 3.5s")
	s.at(2*time.Second).wake(maybeMissed, "| 2s")
}

// A process with many names does not wait for the round of each to be woken again: they follow within some intervals.
func TestManyNamesEnterAgain(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	s.v.rounds = 100
	r := holder("a", 1, 24*time.Hour)
	r.TTL = 24 * time.Hour
	s.woken(0, 0, wakingEnded)
	s.send(0)
	s.Answered(0, 0, refused(r))
	s.at(time.Second)
	s.woken(s.v.now, 0, maybeMissed)
	s.Read(s.v.now, 0, s.slots[0].read.number, r, false)
	if _, at := s.Next(); at > 102*time.Second {
		t.Errorf("nothing wakes its position, and it asks again at %v", at)
	}
}

// A refusal without a holder and without a position, as after PostgreSQL's lock timeout, is no reason to rest.
func TestRefusedWithoutAPosition(t *testing.T) {
	for _, rounds := range []int64{1, 2} {
		s := newScript(t, 1, Traits{Reads: true, Queue: true})
		s.v.rounds = rounds
		s.send(0)
		s.Answered(0, 0, refused(holder("a", 1, time.Hour)))
		s.woken(0, 0, nothingMissed)
		s.at(time.Second).send(0)
		next := Never
		for _, a := range s.Answered(s.v.now, 0, Answer{Outcome: Refused, Holder: &driver.Record{Name: "job", State: driver.StateHeld}}) {
			if a.Kind == Read {
				next = a.At
			}
		}
		if _, at := s.Next(); min(at, next) > s.v.now+4*time.Second {
			t.Errorf("%d rounds: nothing wakes it, and it rests until %v", rounds, min(at, next))
		}
	}
}

// A position is refreshed before it ends, also if the process waits for many more names since.
func TestPositionIsRefreshedBeforeItEnds(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	s.v.rounds = 2
	r := holder("a", 1, 24*time.Hour)
	r.TTL, r.Position = 24*time.Hour, 1
	_, lasts, _ := s.Send(0, 0)
	s.Answered(0, 0, refused(r))
	s.woken(0, 0, nothingMissed)
	s.v.rounds = 157
	s.at(20 * time.Second)
	s.Read(s.v.now, 0, s.slots[0].read.number, r, false)
	if _, at := s.Next(); at > lasts {
		t.Errorf("the position lasts %v, and the next request is due at %v", lasts, at)
	}
}

// A reader whose wake-up may be lost asks whether it may join the others.
func TestReaderMayHaveMissedItsTurn(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true, Shared: true})
	r := holder("a", 1, time.Hour)
	r.Position = 1
	s.send(0)
	s.Answered(0, 0, refused(r))
	s.woken(0, 0, nothingMissed)
	s.at(time.Second)
	s.woken(s.v.now, 0, wakingEnded)
	s.at(1050 * ms)
	s.woken(s.v.now, 0, maybeMissed)
	shared := holder("b", 2, time.Hour)
	shared.Position, shared.Holders = 1, []driver.Holder{{Owner: "b", Token: 2, TTL: ttl}}
	if shown, _ := s.Read(s.v.now, 0, s.slots[0].read.number, shared, false); shown != Free {
		_, at := s.Next()
		t.Errorf("a reader that may join others asks only at %v", at)
	}
}
