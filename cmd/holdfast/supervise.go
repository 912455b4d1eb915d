package main

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	// pollEvery is how often a group that is to end is looked at.
	pollEvery = 10 * time.Millisecond
	// sweepAfter is how long processes that the command left behind have to end.
	sweepAfter = 2 * time.Second
	// complainEvery is how often it is told that a group does not end.
	complainEvery = 10 * time.Second
)

// supervisor looks after one run of the command under one hold.
type supervisor struct {
	hold      *holdfast.Hold
	child     *child
	signals   <-chan os.Signal
	say       *reporter
	killAfter time.Duration

	lost    bool          // the hold was lost before the command had ended
	ending  bool          // a signal that asks to end was passed on
	asked   bool          // SIGTERM was
	killed  bool          // SIGKILL was sent
	reserve time.Duration // how long before another may be granted the lock SIGKILL is sent
	killAt  time.Time     // when SIGKILL is sent in any case; zero: never
	ticks   *time.Ticker
}

// wait returns the command's exit code after the command and, as far as can be
// seen, its whole group have ended.
func (s *supervisor) wait() int {
	s.ticks = time.NewTicker(time.Hour)
	defer s.ticks.Stop()
	lost, exited, code := s.hold.Context().Done(), s.child.exited, 0
	complain := time.Now().Add(complainEvery)
	for {
		select {
		case <-lost:
			lost = nil
			s.lose()
		case sig := <-s.signals:
			s.pass(sig)
		case sig := <-s.child.stops:
			s.child.jobControl(sig, s.tellSuspended, func() bool { return s.hold.Err() == nil })
		case code = <-exited:
			exited = nil
			s.lateExit()
			if s.child.remains() {
				s.sweep()
			}
		case <-s.child.orphans:
			s.child.reapOrphans()
		case <-s.ticks.C:
		}
		if exited == nil && !s.child.remains() {
			return code
		}
		s.killIfDue()
		if s.killed && time.Now().After(complain) {
			complain = time.Now().Add(complainEvery)
			s.say.error("process group %d does not end, although it was killed; %q is not released before it does", s.child.pid, s.hold.Name())
		}
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
	s.lost = true
	left := s.hold.ExpiresIn()
	s.reserve = max(left/5, 0)
	if left <= 0 {
		s.say.error("lost %q (%v); the lease is over: killing the command", s.hold.Name(), s.hold.Err())
	} else {
		s.say.error("lost %q (%v); the command has %s to stop", s.hold.Name(), s.hold.Err(), seconds(left-s.reserve))
		s.report(s.child.end(termSignal))
	}
	s.ticks.Reset(pollEvery)
	s.killIfDue()
}

// pass hands a signal on to the command's group. A second SIGTERM kills it.
func (s *supervisor) pass(sig os.Signal) {
	s.say.detail("passing on signal %q", sig)
	if !slices.Contains(endingSignals, sig) {
		s.report(s.child.signal(sig))
		return
	}
	s.ending = true
	switch {
	case sig != termSignal:
		s.report(s.child.end(sig))
		return
	case s.asked:
		s.say.error("a second SIGTERM: killing the command")
		s.killBy(time.Now())
	case s.killAfter > 0:
		s.killBy(time.Now().Add(s.killAfter))
	}
	s.asked = true
	s.report(s.child.end(sig))
}

// sweep ends what the command has left behind in its group: it would go on working
// without the lock.
func (s *supervisor) sweep() {
	s.say.info("the command has ended, but not all that it started in process group %d: ending that, too", s.child.pid)
	s.report(s.child.end(termSignal))
	s.killBy(time.Now().Add(sweepAfter))
}

// killBy has the group killed at a time, or earlier if that was said before.
func (s *supervisor) killBy(t time.Time) {
	if s.killAt.IsZero() || t.Before(s.killAt) {
		s.killAt = t
	}
	s.ticks.Reset(pollEvery)
}

// killIfDue kills the group, and again with every tick in case it has forked.
func (s *supervisor) killIfDue() {
	late := s.lost && s.hold.ExpiresIn() <= s.reserve
	if !late && (s.killAt.IsZero() || time.Now().Before(s.killAt)) {
		return
	}
	if !s.killed {
		s.killed = true
		s.say.info("killing process group %d", s.child.pid)
	}
	s.report(s.child.kill())
}

func (s *supervisor) tellSuspended() {
	s.say.info("stopped together with the command; %q is lost unless they continue within %s", s.hold.Name(), seconds(s.hold.LostIn()))
}

func (s *supervisor) report(err error) {
	if err != nil {
		s.say.detail("cannot signal process group %d: %v", s.child.pid, err)
	}
}
