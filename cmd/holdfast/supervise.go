package main

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	// pollEvery is how often a group that has to end is looked at.
	pollEvery = 10 * time.Millisecond
	// sweepAfter is how long processes that the command left behind have to end.
	sweepAfter = 2 * time.Second
	// complainEvery is how often it is reported that a group does not end.
	complainEvery = 10 * time.Second
	// sameRequest is how soon after a SIGTERM another one is still the same request: a
	// service manager sends it to every process of a service, and wrappers pass theirs on.
	sameRequest = time.Second
	// hearWithin is how long holdfast keeps a signal to learn whether the command's
	// group was sent it, too.
	hearWithin = 100 * time.Millisecond
	// flushTimeout bounds how long messages are waited for where their order matters.
	flushTimeout = 100 * time.Millisecond
)

// supervisor looks after one run of the command under one hold. Signals go first and
// messages follow; neither waits for a reader of the messages.
type supervisor struct {
	hold      *holdfast.Hold
	child     *child
	signals   <-chan os.Signal
	say       *reporter
	killAfter time.Duration

	ended     bool                    // the command itself has ended, with code
	code      int                     //
	lost      bool                    // the hold was lost before the command had ended
	ending    bool                    // a signal has asked to end
	asked     bool                    // the group was sent SIGTERM
	termAt    time.Time               // when holdfast was sent SIGTERM
	killed    bool                    // the group was sent SIGKILL
	reserve   time.Duration           // how long before another may be granted the lock SIGKILL is sent
	killAt    time.Time               // when SIGKILL is sent in any case; zero: never
	complain  time.Time               // when to report that the group does not end
	pending   []request               // signals that are not passed on yet
	heard     map[os.Signal]time.Time // when others sent the group a signal
	sent      map[os.Signal]time.Time // when holdfast did, unless the guardian has reported that
	nextOrder time.Time               // when the guardian gets its next order
	unguarded time.Time               // since when there is no guardian, unless that was reported
}

// request is a signal that holdfast was sent.
type request struct {
	sig os.Signal
	at  time.Time
}

// wait returns the command's exit code after the command and, as far as can be
// seen, its whole group have ended.
func (s *supervisor) wait() int {
	s.heard, s.sent = map[os.Signal]time.Time{}, map[os.Signal]time.Time{}
	s.guard()
	timer := time.NewTimer(s.rest())
	defer timer.Stop()
	lost, heard := s.hold.Context().Done(), s.child.heard()
	for {
		select {
		case <-lost:
			lost = nil
			s.look() // the guardian may have killed the command while holdfast was stopped
			s.lose()
		case sig := <-s.signals:
			s.pass(sig)
		case sig, ok := <-heard:
			if !ok {
				heard, s.unguarded = nil, time.Now()
			} else {
				s.hear(sig)
			}
		case sig := <-s.child.stops:
			s.child.jobControl(sig, s.tellSuspended, func() bool { return s.hold.Err() == nil })
		case <-s.child.changed:
			s.look()
		case <-timer.C:
		}
		if s.ended && !s.child.remains() {
			s.explainKill()
			return s.code
		}
		s.passPending()
		s.killIfDue()
		s.guard()
		s.complainIfDue()
		timer.Reset(s.rest())
	}
}

// rest is the time until there is something to do, unless something happens.
func (s *supervisor) rest() time.Duration {
	if s.ended || s.lost || s.killed {
		return pollEvery
	}
	next := s.nextOrder
	for _, r := range s.pending {
		next = earlier(next, r.at.Add(hearWithin))
	}
	if !s.unguarded.IsZero() {
		next = earlier(next, s.unguarded.Add(hearWithin))
	}
	return max(time.Until(earlier(next, s.killAt)), time.Millisecond)
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// look asks whether the command itself has ended.
func (s *supervisor) look() {
	code, ended := s.child.poll()
	if s.ended || !ended {
		return
	}
	s.ended, s.code = true, code
	s.lateExit()
	if s.child.remains() {
		s.sweep()
	}
}

// lateExit counts the lock as lost if that is seen only when the command has ended:
// nobody knows how long before.
func (s *supervisor) lateExit() {
	if err := s.hold.Err(); !s.lost && errors.Is(err, holdfast.ErrLost) {
		s.lost = true
		s.say.error("lost %q, perhaps before the command ended (%v)", s.hold.Name(), err)
	}
}

// lose has the command stop in what is left of the lease: at first it is asked,
// then, with a fifth of the time left, it is killed.
func (s *supervisor) lose() {
	if s.lost {
		return
	}
	s.lost = true
	left := s.hold.ExpiresIn()
	s.reserve = max(left/5, 0)
	if left > 0 && !s.asked {
		s.send(termSignal)
	}
	s.killIfDue()
	if left <= 0 {
		s.say.error("lost %q (%v); the lease is over: killing the command", s.hold.Name(), s.hold.Err())
	} else {
		s.say.error("lost %q (%v); the command has %s to stop", s.hold.Name(), s.hold.Err(), seconds(left-s.reserve))
	}
}

// hear takes what the guardian reports: a signal that others sent to the group, or the
// one that holdfast passed on last.
func (s *supervisor) hear(sig os.Signal) {
	now := time.Now()
	if now.Sub(s.sent[sig]) > sameRequest {
		s.heard[sig] = now
	}
	delete(s.sent, sig)
}

// pass hands a signal on to the command's group. It is kept for a moment, since the group
// may have been sent it, too. A second SIGTERM kills.
func (s *supervisor) pass(sig os.Signal) {
	now := time.Now()
	s.ending = s.ending || asksToEnd(sig)
	if slices.ContainsFunc(s.pending, func(r request) bool { return r.sig == sig }) {
		return
	}
	if sig == termSignal && !s.termAt.IsZero() {
		if now.Sub(s.termAt) > sameRequest {
			s.killBy(now)
			s.killIfDue()
			s.say.error("a second SIGTERM: killed the command")
		}
		return
	}
	if sig == termSignal {
		s.termAt = now
		if s.killAfter > 0 {
			s.killBy(now.Add(s.killAfter))
		}
	}
	s.pending = append(s.pending, request{sig, now})
}

// passPending passes on what the group has not been sent by others. A program that is
// asked twice may well end less orderly.
func (s *supervisor) passPending() {
	now := time.Now()
	s.pending = slices.DeleteFunc(s.pending, func(r request) bool {
		switch {
		case s.heard[r.sig].After(r.at.Add(-hearWithin)):
			s.say.detail("signal %q has reached the command without holdfast", r.sig)
			if asksToEnd(r.sig) {
				s.report(s.child.wake())
			}
		case s.child.heard() != nil && now.Before(r.at.Add(hearWithin)):
			return false
		default:
			s.send(r.sig)
			s.say.detail("passed on signal %q", r.sig)
		}
		s.asked = s.asked || r.sig == termSignal
		return true
	})
}

// send sends the group a signal.
func (s *supervisor) send(sig os.Signal) {
	s.sent[sig] = time.Now()
	s.asked = s.asked || sig == termSignal
	if asksToEnd(sig) {
		s.report(s.child.end(sig))
	} else {
		s.report(s.child.signal(sig))
	}
}

func asksToEnd(sig os.Signal) bool { return slices.Contains(endingSignals, sig) }

// explainKill says why the command was killed if nobody else can.
func (s *supervisor) explainKill() {
	if s.child.guardianKilled() && s.code == codeSignal+int(syscall.SIGKILL) {
		s.say.error("the guardian killed process group %d: the lease of %q was nearly over, and no renewal was reported to it", s.child.pid, s.hold.Name())
	}
}

// sweep ends what the command has left behind in its group: it would go on working
// without the lock. What was asked to end together with the command has as long as
// that would have had.
func (s *supervisor) sweep() {
	how := "waiting for that, too; it was asked to end as well"
	if !s.asked && s.termAt.IsZero() {
		s.send(termSignal)
		s.killBy(time.Now().Add(sweepAfter))
		how = "ending that, too"
	}
	s.say.info("the command has ended, but not all that it started in process group %d: %s", s.child.pid, how)
}

// killBy has the group killed at a time, or earlier if that was said before.
func (s *supervisor) killBy(t time.Time) { s.killAt = earlier(s.killAt, t) }

// killIfDue kills the group, and again with every poll in case it has a new member.
func (s *supervisor) killIfDue() {
	late := s.lost && s.hold.ExpiresIn() <= s.reserve
	if !late && (s.killAt.IsZero() || time.Now().Before(s.killAt)) {
		return
	}
	s.report(s.child.kill())
	if !s.killed {
		s.killed, s.complain = true, time.Now().Add(complainEvery)
		s.say.info("killing process group %d", s.child.pid)
	}
}

// guard gives the guardian its next order: to kill the group when half of the reserve
// that holdfast leaves itself is over. Orders are renewed with the lease, which is
// looked at often enough to see a renewal that came at the last moment.
func (s *supervisor) guard() {
	now := time.Now()
	if s.lost || now.Before(s.nextOrder) {
		return
	}
	lostIn := s.hold.LostIn()
	grace := s.hold.ExpiresIn() - lostIn
	s.nextOrder = now.Add(max(lostIn/2, grace/4))
	if s.hold.Err() != nil {
		return
	}
	if err := s.child.guard(func() time.Duration { return s.hold.ExpiresIn() - grace/10 }); err != nil {
		s.say.detail("cannot reach the guardian of process group %d: %v", s.child.pid, err)
	}
}

// complainIfDue reports what does not go as it should.
func (s *supervisor) complainIfDue() {
	now := time.Now()
	if s.killed && now.After(s.complain) {
		s.complain = now.Add(complainEvery)
		s.say.error("process group %d does not end, although it was killed; %q is not released before it does", s.child.pid, s.hold.Name())
	}
	if !s.unguarded.IsZero() && now.After(s.unguarded.Add(hearWithin)) {
		s.unguarded = time.Time{}
		if !s.ended && !s.killed {
			s.say.error("the guardian of process group %d has ended: %s", s.child.pid, withoutGuardian)
		}
	}
}

const withoutGuardian = "if holdfast is killed or stopped now, what the command has started may work on without the lock"

func (s *supervisor) tellSuspended() {
	s.say.info("stopped together with the command; %q is lost unless they continue within %s", s.hold.Name(), seconds(s.hold.LostIn()))
	s.say.flush(flushTimeout)
}

func (s *supervisor) report(err error) {
	if err != nil {
		s.say.detail("cannot signal process group %d: %v", s.child.pid, err)
	}
}
