package waiter

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// script drives a Waiter for a test. Each step checks the actions and when the next request is due.
type script struct {
	t *testing.T
	*Waiter
	v *world
}

func newScript(t *testing.T, slots int, traits Traits) *script {
	t.Helper()
	w, v := newWaiter(slots, traits)
	w.Join()
	return &script{t, w, v}
}

// at moves the clock.
func (s *script) at(now time.Duration) *script {
	s.v.now = now
	return s
}

func (s *script) want(actions []Action, want string) {
	s.t.Helper()
	if got := s.describe(actions); got != want {
		s.t.Errorf("at %v: %q, want %q", s.v.now, got, want)
	}
}

func (s *script) send(slot int) driver.LeaseID {
	id, _, _ := s.Send(s.v.now, slot)
	return id
}

func (s *script) answer(a Answer, want string) {
	s.t.Helper()
	s.want(s.Answered(s.v.now, 0, a), want)
}

func (s *script) wake(turn time.Duration, want string) {
	s.t.Helper()
	s.want(s.woken(s.v.now, 0, turn), want)
}

// read answers the latest read of the first slot.
func (s *script) read(r driver.Record, failed bool, shown Shown, want string) {
	s.t.Helper()
	got, actions := s.Read(s.v.now, 0, s.slots[0].read.number, r, failed)
	if got != shown {
		s.t.Errorf("at %v: the read has shown %d, want %d", s.v.now, got, shown)
	}
	s.want(actions, want)
}

// held has the first request refused at once, by a holder with a whole TTL left.
func (s *script) held(want string) {
	s.t.Helper()
	s.send(0)
	s.answer(refused(holder("a", 1, ttl)), want)
}

func TestPolls(t *testing.T) {
	s := newScript(t, 1, Traits{})
	s.want(nil, "| 0s")
	s.held("report a 1 | 2.5s") // a new holder: half the poll interval
	s.at(2500 * ms).send(0)
	s.answer(refused(holder("a", 1, ttl)), "| 5s")
	s.at(40 * time.Second).send(0)
	s.answer(refused(holder("a", 1, ttl-ms)), "| 45s") // an eighth of the time that it has been seen
	s.at(45 * time.Second).send(0)
	s.answer(refused(holder("b", 2, ttl)), "report b 2 | 47.5s") // another
	s.at(46 * time.Second).send(0)
	s.answer(refused(holder("b", 2, time.Second)), "| 47.006s") // at the expiry
	s.at(48*time.Second).wake(nothingMissed, "| 47.006s")
}

func TestReadsReplaceRequests(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	s.held("report a 1, read 2.5s | 30.006s")
	s.at(2500*ms).read(holder("a", 1, 28*time.Second), false, Held, "read 5s | 30.506s")
	s.at(5*time.Second).read(holder("a", 1, 2*time.Second), false, Held, "| 7.006s")
}

// When less time is left than a poll interval, the last read comes while a live holder has renewed.
func TestReadBeforeTheExpiry(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	s.settings.Poll, s.settings.PollSet = time.Hour, true
	s.held("report a 1, read 22.5s | 30.006s")
	s.at(22500*ms).read(holder("a", 1, 7500*ms), false, Held, "| 30.006s")
}

func TestReadShowsAFreeLock(t *testing.T) {
	for name, r := range map[string]driver.Record{
		"free": {State: driver.StateFree}, "unknown": {}, "expired": holder("a", 1, 0),
	} {
		s := newScript(t, 1, Traits{Reads: true})
		s.held("report a 1, read 2.5s | 30.006s")
		s.at(2 * time.Second) // the Reader shares calls
		s.read(r, false, Free, "| 2s")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestFailedReads(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	s.held("report a 1, read 2.5s | 30.006s")
	s.at(2500*ms).read(driver.Record{}, true, Free, "| 2.5s") // a request instead
	s = newScript(t, 1, Traits{Reads: true, Rereads: true})
	s.held("report a 1, read 2.5s | 30.006s")
	s.at(2500*ms).read(driver.Record{}, true, Failure, "read 2.8s | 30.006s")
	s.at(2800*ms).read(driver.Record{}, true, Failure, "read 3.4s | 30.006s")
	s.at(2900*ms).wake(0, "drop read | 3.4s") // in the backoff
	s.at(3400 * ms).send(0)
	s.answer(refused(holder("a", 1, ttl-ms)), "read 5.9s | 33.405s")
	s.at(5900*ms).read(driver.Record{}, true, Failure, "read 6.2s | 33.405s") // the count began again
}

// The holder's time is over by the elapsed time of this process, whatever its expiry says.
func TestStuckHolder(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	s.settings.Poll = 20 * time.Second
	s.send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1, read 10s | 30.036s")
	s.at(10*time.Second).read(holder("a", 1, time.Hour), false, Held, "read 20s | 30.036s")
	s.at(20*time.Second).read(holder("a", 1, time.Hour), false, Held, "read 30s | 30.036s")
	s.at(30030*ms).read(holder("a", 1, time.Hour), false, Held, "| 30.03s")
}

// Requests that are refused although the lock should be free become as rare as the poll interval.
func TestOverdue(t *testing.T) {
	s := newScript(t, 1, Traits{})
	for _, want := range []string{"report a 1 | 10ms", "| 30ms", "| 70ms", "| 150ms", "| 310ms", "| 630ms", "| 1.27s", "| 2.55s", "| 5.05s"} {
		s.send(0)
		s.answer(refused(holder("a", 1, 0)), want)
		_, s.v.now = s.Next()
	}
	s.send(0)
	s.answer(refused(holder("a", 2, 0)), "report a 2 | 5.06s") // another has it
}

func TestAfterExpiry(t *testing.T) {
	for position, want := range []time.Duration{6 * ms, ms, 201 * ms, 551 * ms} {
		s := newScript(t, 1, Traits{Reads: true, Queue: true})
		s.v.rounds = 2
		r := holder("a", 1, ttl-time.Second)
		r.Position = position
		s.send(0)
		s.Answered(0, 0, refused(r))
		if _, at := s.Next(); at != ttl-time.Second+want {
			t.Errorf("position %d: a request %v after the expiry, want %v", position, at-ttl+time.Second, want)
		}
		s.Answered(0, 0, Answer{Outcome: Refused, Holder: &r, Reserved: true})
		if _, at := s.Next(); position == 2 && at != ttl-time.Second+ms {
			t.Errorf("a request %v after the reservation", at-ttl+time.Second)
		}
	}
}

func TestBackoff(t *testing.T) {
	s := newScript(t, 1, Traits{Queue: true})
	s.held("report a 1 | 2.5s")
	s.at(2500 * ms).send(0)
	s.wake(0, "| never") // a request is under way
	s.answer(Answer{Outcome: Unknown}, "| 2.8s")
	if !s.Retrying() {
		t.Error("not a retry")
	}
	s.wake(0, "| 2.8s")
	s.wake(maybeMissed, "| 2.8s")
	s.want(s.SlotFreed(s.v.now, 0), "| 2.8s")
	s.at(2800 * ms).send(0)
	s.answer(Answer{Outcome: Failed}, "| 3.4s")
	s.at(3400 * ms).send(0)
	s.answer(refused(holder("a", 1, ttl-ms)), "| 23.4s")
	if s.Retrying() {
		t.Error("a retry after a refusal")
	}
	s.at(23400 * ms).send(0)
	s.answer(Answer{Outcome: Unknown}, "| 23.7s")
	s.Start(23500 * ms)
	s.want(nil, "| 23.5s") // whatever came before
}

// A short poll interval is the backend's wish while it answers. It does not shorten the backoff after a failure, unless a
// user has set it.
func TestBackoffWhereThePollIntervalIsShort(t *testing.T) {
	for _, set := range []bool{false, true} {
		s := newScript(t, 1, Traits{})
		s.settings.Poll, s.settings.PollSet = 100*ms, set
		wants := []string{"| 300ms", "| 900ms", "| 2.1s", "| 4.5s", "| 7s", "| 9.5s"}
		if set {
			wants = []string{"| 100ms", "| 200ms", "| 300ms"}
		}
		for _, want := range wants {
			s.send(0)
			s.answer(Answer{Outcome: Unknown}, want)
			s.wake(maybeMissed, want)
			_, s.v.now = s.Next()
		}
	}
}

// Nothing is sent before the beginning.
func TestStart(t *testing.T) {
	s := newScript(t, 1, Traits{})
	s.Start(time.Second)
	s.want(s.SlotFreed(0, 0), "| 1s")
	s.wake(0, "| 1s")
}

func TestInDoubt(t *testing.T) {
	s := newScript(t, 1, Traits{Reads: true})
	first := s.send(0)
	s.answer(Answer{Outcome: Unknown}, "| 300ms")
	s.at(300 * ms)
	if id := s.send(0); id != first {
		t.Error("the repeated request has another ID")
	}
	s.at(400*ms).answer(Answer{Outcome: Unknown}, "| 1s")
	s.at(time.Second).send(0)
	s.answer(refused(holder("a", 1, time.Hour)), "report a 1 | 3.5s") // it may be this caller's own: no read
	s.at(3500*ms).want(s.Leave(-1), "clean up id1 until 30.3s | never")
	s.Start(s.v.now)
	if id := s.send(0); id == first {
		t.Error("an ID is used again after its cleanup")
	}
}

// A broken lease may be the caller's own. Its ID is refused while it lasts.
func TestOwnBrokenLease(t *testing.T) {
	s := newScript(t, 1, Traits{})
	s.send(0)
	s.answer(Answer{Outcome: Unknown}, "| 300ms")
	s.at(300 * ms).send(0)
	r := holder("a", 1, ttl)
	r.Broken = true
	s.answer(refused(r), "report a 1, clean up id1 until 30s | 2.8s")
}

func TestIDIsGivenUp(t *testing.T) {
	s := newScript(t, 1, Traits{})
	first := s.send(0)
	s.answer(Answer{Outcome: TooLate}, "clean up id1 until 30s | 300ms")
	s.at(300 * ms)
	second := s.send(0)
	s.answer(Answer{Outcome: Unknown, IDReleased: true}, "clean up id2 until 30.3s | 900ms")
	s.at(900 * ms)
	third := s.send(0)
	s.answer(Answer{Outcome: Refused, IDReleased: true}, "| 3.4s")
	s.at(4 * time.Second)
	if fourth := s.send(0); first == second || second == third || third == fourth {
		t.Error("an ID is used again")
	}
}

// The end of a wait drops a planned read and cleans up what is in doubt, except for the slot that was granted. Nothing is due after it.
func TestLeave(t *testing.T) {
	for what, test := range map[string]struct {
		queue   bool
		answer  *Answer // of the one request
		granted int
		want    string
	}{
		"nothing was sent":     {true, nil, -1, "| never"},
		"refused":              {false, &Answer{Outcome: Refused}, -1, "drop read | never"},
		"refused, in a queue":  {true, &Answer{Outcome: Refused}, -1, "| never"},
		"in doubt":             {false, &Answer{Outcome: Unknown}, -1, "clean up id1 until 30s | never"},
		"in doubt, in a queue": {true, &Answer{Outcome: Unknown}, -1, "clean up id1 until 30s | never"},
		"granted":              {true, &Answer{Outcome: Unknown}, 0, "| never"},
	} {
		w, v := newWaiter(1, Traits{Reads: true, Queue: test.queue})
		s := &script{t, w, v}
		if s.Join() != test.queue {
			t.Errorf("%s: wrong result of Join", what)
		}
		if test.answer != nil {
			s.send(0)
			s.Answered(0, 0, *test.answer)
		}
		if got := s.describe(s.Leave(test.granted)); got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
		if got := text(s.Leave(test.granted)); got != "" {
			t.Errorf("%s: left twice: %s", what, got)
		}
		s.wake(0, "| never")
		s.want(s.SlotFreed(0, 0), "| never")
	}
}

// A caller that only tries reads nothing in the background.
func TestTry(t *testing.T) {
	w, v := newWaiter(1, Traits{Reads: true, Queue: true})
	s := &script{t, w, v}
	if _, queueFor, _ := s.Send(0, 0); queueFor != 0 {
		t.Error("it enters the queue")
	}
	s.answer(refused(holder("a", 1, ttl)), "report a 1 | 2.5s")
	s.want(s.Leave(-1), "| never")
}
