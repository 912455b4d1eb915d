package waiter

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// watchedScript is a waiter in the backend's queue whose first request was refused at once, and which
// polls every 20 s.
func watchedScript(t *testing.T, traits Traits) *script {
	t.Helper()
	s := newScript(t, 1, traits)
	s.v.rounds = 2 // reads, where they are possible
	s.send(0)
	s.Answered(0, 0, refused(holder("a", 1, time.Hour)))
	s.wake(nothingMissed, map[bool]string{true: "read 20s | 30.036s", false: "| 20s"}[traits.Reads])
	return s
}

func TestTurns(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true, Queue: true})
	s.at(time.Second).wake(400*ms, "drop read | 1.4s")
	s.wake(600*ms, "| 1.4s") // a later one does not postpone it
	s.wake(200*ms, "| 1.2s")
	s.wake(nothingMissed, "| 1.2s")
	s.wake(wakingEnded, "| 1.2s")
	s.wake(0, "| 1s")
	s.send(0)
	s.answer(refused(holder("a", 2, time.Hour)), "report a 2, read 3.5s | 31.036s") // it polls as before it was woken
	s.wake(time.Hour, "drop read | 2s")                                             // at most MaxTurns
}

// The length of a turn is what the backend declares.
func TestTurnsOfAnotherLength(t *testing.T) {
	s := watchedScript(t, Traits{Queue: true, Turn: 2 * time.Second})
	s.at(time.Second).wake(time.Hour, "| 11s")
	w, v := newWaiter(1, Traits{Queue: true, Turn: 2 * time.Second})
	w.slots[0].position = 2
	if got, want := w.afterExpiry(&w.slots[0]), 2*time.Second+time.Millisecond; got != want {
		t.Errorf("the second sends its request %v after the expiry at %v, want %v", got, v.now, want)
	}
}

// A turn that is announced while a request or a read is under way is kept, and so is one that a sent
// request has come before.
func TestTurnDuringARequest(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true, Queue: true})
	s.at(time.Second).wake(0, "drop read | 1s")
	s.send(0)
	s.wake(400*ms, "| never")
	s.wake(maybeMissed, "| never") // the turn is more urgent
	s.at(1100*ms).answer(refused(holder("a", 1, time.Hour)), "| 1.4s")
	s.at(1200*ms).wake(0, "| 1.2s")
	s.wake(500*ms, "| 1.2s")
	s.send(0)
	s.at(1300*ms).answer(refused(holder("a", 1, time.Hour)), "read 21.3s | 30.036s")
	s.wake(500*ms, "drop read | 1.8s")
	s.want(s.SlotFreed(s.v.now, 0), "| 1.3s")
	s.send(0)
	s.wake(600*ms, "| never")
	s.answer(Answer{Outcome: Unknown}, "| 1.6s")
	s.at(1600 * ms).send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "| 1.8s") // the requests came before it
}

func TestTurnDuringARead(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true})
	s.v.crowded = true
	s.at(time.Second).wake(maybeMissed, "read 1s | 30.036s")
	number := s.slots[0].read.number
	s.wake(400*ms, "drop read | 1.4s")
	if shown, actions := s.Read(s.v.now, 0, number, holder("a", 1, time.Hour), false); shown != Nothing || actions != nil {
		t.Errorf("the dropped read has shown %d: %s", shown, text(actions))
	}
	s.at(1200*ms).wake(maybeMissed, "read 1.2s | 1.4s") // it may be free already
	if shown, _ := s.Read(s.v.now, 0, number, driver.Record{}, false); shown != Nothing {
		t.Errorf("the result of another read has shown %d", shown)
	}
	s.at(1300*ms).read(holder("a", 1, time.Hour), false, Held, "| 1.4s") // and keeps its turn
}

// The end of waking, and a read that follows it, do not postpone a turn.
func TestTurnWhenWakingEnds(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true, Queue: true})
	s.at(time.Second).wake(400*ms, "drop read | 1.4s")
	s.wake(wakingEnded, "| 1.4s")
	s.wake(maybeMissed, "read 1s | 1.4s")
	s.at(1100*ms).read(holder("a", 1, time.Hour), false, Held, "| 1.4s")
}

// A waiter whose latest request was sent while nothing woke it has a position that nothing wakes, or none. It sends another as soon
// as waking begins. One that polled before, and asked since, only reads, and so does one of many names.
func TestPositionOfAWaiterThatPolled(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true, Queue: true})
	s.at(time.Second).wake(wakingEnded, "read 2.5s | 30.036s")
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "read 3.5s | 30.036s")
	s.at(3*time.Second).wake(maybeMissed, "read 3s | 30.036s")
	s = watchedScript(t, Traits{Reads: true, Queue: true})
	s.v.rounds = 1
	s.at(time.Second).wake(wakingEnded, "drop read | 2.5s")
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "| 3.5s")
	s.at(3*time.Second).wake(maybeMissed, "| 3s")
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "| 23s")
	s.wake(wakingEnded, "| 5.5s")
	s.wake(maybeMissed, "read 3s | 5.5s")
}

func TestWakingDecidesThePollInterval(t *testing.T) {
	s := watchedScript(t, Traits{Reads: true})
	s.wake(wakingEnded, "read 2.5s | 30.036s")
	s.wake(maybeMissed, "read 0s | 30.036s")
	s.read(holder("a", 1, time.Hour), false, Held, "read 20s | 30.036s")
	s.at(time.Second).send(0)
	s.wake(wakingEnded, "| never") // during a request
	s.answer(refused(holder("a", 1, time.Hour)), "read 3.5s | 30.036s")
	s.at(2 * time.Second).send(0)
	s.wake(0, "| never") // a turn alone does not say that waking is in effect
	s.answer(refused(holder("a", 1, time.Hour)), "| 2s")
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "read 4.5s | 30.036s")
}

// A wake-up without a time leads to a request, or to a read where that is enough.
func TestMaybeMissed(t *testing.T) {
	for _, test := range []struct {
		what                     string
		reads, watching, crowded bool
		want                     string
	}{
		{"the first call", true, false, false, "read 1s | 30.036s"},
		{"the first call, without batch reads", false, false, false, "| 1s"},
		{"a later call", true, true, false, "drop read | 1s"},
		{"a later call, and others were woken, too", true, true, true, "read 1s | 30.036s"},
	} {
		s := newScript(t, 1, Traits{Reads: test.reads})
		s.v.crowded = test.crowded
		s.send(0)
		s.Answered(0, 0, refused(holder("a", 1, time.Hour)))
		if test.watching {
			s.woken(0, 0, nothingMissed)
		}
		if got := s.at(time.Second).describe(s.woken(s.v.now, 0, maybeMissed)); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

// What is under way when the wake-up comes may return the state before it.
func TestMaybeMissedDuringARequestOrARead(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	s.send(0)
	s.wake(maybeMissed, "| never")
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1, read 20s, read 0s | 30.036s")
	s.wake(maybeMissed, "| 30.036s") // the read is under way
	s.wake(nothingMissed, "| 30.036s")
	s.at(ms).read(holder("a", 1, time.Hour), false, Held, "read 20.001s, drop read | 1ms")
	s.send(0)
	s.wake(maybeMissed, "| never")
	s.answer(refused(holder("a", 1, time.Hour)), "read 20.001s, drop read | 1ms")
	s.at(2 * ms).send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "read 20.002s | 30.036s")
}

func TestQueuePositions(t *testing.T) {
	const refresh = 2 * watched // in two rounds
	s := watchedScript(t, Traits{Reads: true, Queue: true})
	placed, gone := holder("a", 1, time.Hour), holder("a", 1, time.Hour)
	placed.Position = 1
	s.at(10 * time.Second)
	_, queueFor, _ := s.Send(s.v.now, 0)
	if queueFor != 4*refresh {
		t.Errorf("a position lasts for %v", queueFor)
	}
	s.answer(refused(placed), "read 30s | 30.031s")
	s.at(20*time.Second).read(placed, false, Held, "| 30.031s")
	s.at(21*time.Second).wake(maybeMissed, "| 21s")
	s.v.crowded = true
	s.at(21 * time.Second).send(0)
	s.answer(refused(placed), "| 30.031s")
	s.wake(maybeMissed, "read 21s | 30.031s")
	s.read(gone, false, Held, "| 21s") // it enters the queue again
	s.at(22 * time.Second).send(0)
	s.answer(refused(gone), "| 30.036s")
	s.at(23*time.Second).wake(maybeMissed, "read 23s | 30.036s")
	s.read(gone, false, Held, "| 30.036s") // it could not be had before
	renewed := holder("a", 1, time.Hour-time.Second)
	s.at(22*time.Second+refresh).wake(maybeMissed, "read 1m2s | 30.036s")
	s.read(renewed, false, Held, "| 1m2s") // a refresh is due
}

// A waiter for few names refreshes its position by requests at the poll interval. One for many names
// does so rarely.
func TestRefresh(t *testing.T) {
	for rounds, want := range map[int64]time.Duration{1: watched, 2: 2 * watched, 10: 10 * watched, 1000: maxRefreshInterval} {
		s := newScript(t, 1, Traits{Reads: true, Queue: true})
		s.v.rounds = rounds
		r := holder("a", 1, 24*time.Hour)
		r.TTL = 24 * time.Hour
		_, queueFor, _ := s.Send(0, 0)
		s.Answered(0, 0, refused(r))
		s.woken(0, 0, nothingMissed)
		if _, at := s.Next(); at != want || queueFor != max(4*want, minQueueFor) || s.slots[0].read.planned != (rounds > 1) {
			t.Errorf("%d rounds: a request after %v, want %v; a position for %v", rounds, at, want, queueFor)
		}
	}
}

// A waiter that nothing wakes does not let its turn pass. Where the process waits for few names, it sends
// requests, which refresh its position, instead of reads.
func TestPollsInAQueueThatDoesNotWake(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true, Queue: true})
	r := holder("a", 1, time.Hour)
	r.Position = 1
	s.send(0)
	s.answer(refused(r), "report a 1 | 100ms")
	s.at(400 * ms).send(0)
	s.answer(refused(r), "| 800ms")
	s.settings.PollSet = true
	s.at(800 * ms).send(0)
	s.answer(refused(r), "| 5.8s")
}

// Beside a queue of which the process is not notified, requests take the place of reads.
func TestBesideAQueue(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	r := holder("a", 1, time.Hour)
	if _, queueFor, _ := s.Send(0, 0); queueFor != 0 {
		t.Error("the first request enters a queue")
	}
	r.Waiters = 1
	s.answer(refused(r), "report a 1 | 2.5s")
	s.at(2500 * ms)
	if _, queueFor, _ := s.Send(s.v.now, 0); queueFor != 4*watched {
		t.Errorf("a position for %v", queueFor)
	}
	r.Position = 1
	s.answer(refused(r), "read 5s | 30.031s") // alone in the queue
	if _, queueFor, _ := s.Send(s.v.now, 0); queueFor != 4*watched {
		t.Errorf("alone, a position for %v: only a grant ends it", queueFor)
	}
	r.Position, r.Waiters = 0, 0
	s.answer(refused(r), "read 5s | 30.036s")
	if _, queueFor, _ := s.Send(s.v.now, 0); queueFor != 0 {
		t.Errorf("a position for %v in no queue", queueFor)
	}
	r.Position = 1
	r.Waiters = 2
	s.answer(refused(r), "| 5s")
	s.want(s.Leave(-1), "| never") // there is no queue to leave
}
