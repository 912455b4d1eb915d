// Package child runs the command of "holdfast run": in a process group of its own, with a guardian that kills the group when holdfast
// cannot, and with a supervisor that forwards signals and stops the command before its lease expires.
package child

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
)

const (
	// pollInterval is how often a group that is ending is checked. What the command has left behind is checked so often for a second. The
	// interval doubles each second from then on, up to slowestPoll: a check reads all of /proc.
	pollInterval = 10 * time.Millisecond
	slowestPoll  = 200 * time.Millisecond
	// leftoverTimeout is how long processes that the command left behind have to end.
	leftoverTimeout = 2 * time.Second
	// stuckReportInterval is how often a group that does not end is reported.
	stuckReportInterval = 10 * time.Second
	// SameRequestWindow is how soon after a SIGTERM another one counts as the same request:
	// a service manager sends it to every process of a service, and wrappers forward theirs.
	SameRequestWindow = time.Second
	// ForwardDelay is how long holdfast keeps a signal until it knows whether the command's
	// group was sent the signal too.
	ForwardDelay = 100 * time.Millisecond
	// firstProbe is how soon after its start the command's group is first searched for processes that cannot be
	// signalled. The interval doubles from then on, up to lastProbe.
	firstProbe = 100 * time.Millisecond
	lastProbe  = time.Minute
	// secondProbe is how soon after a probe that has found such a process another follows. A helper that runs as another
	// user for a short time, such as fusermount, has ended by then.
	secondProbe = time.Second
)

// Lease is what keeps the command running: a hold of one lock or of several.
type Lease interface {
	Name() string // of all locks, for messages
	Context() context.Context
	Err() error
	LostIn() time.Duration
	ExpiresIn() time.Duration
}

// Outcome is how a command has ended.
type Outcome struct {
	Code         int  // the command's exit code
	Lost         bool // the lock was lost before the command had ended
	EndRequested bool // a signal has asked holdfast to end
}

// Supervise watches over the command until, as far as the system shows, its whole process group has ended. It forwards the signals
// that were caught. If killAfter is not 0, it kills the command that long after the first SIGTERM.
func (c *Child) Supervise(hold Lease, caught <-chan os.Signal, log *messages.Log, killAfter time.Duration) Outcome {
	s := supervisor{hold: hold, child: c, signals: caught, log: log, killAfter: killAfter}
	code := s.wait()
	return Outcome{code, s.lost, s.endRequested}
}

// PID returns the process ID of the command itself.
func (c *Child) PID() int { return c.pid }

// supervisor watches over one run of the command under one hold. It sends signals first
// and logs afterwards; neither waits for a reader of the messages.
type supervisor struct {
	hold      Lease
	child     *Child
	signals   <-chan os.Signal
	log       *messages.Log
	killAfter time.Duration // --kill-after; 0: never

	commandEnded bool      // with exitCode; processes of its group may still run
	endedAt      time.Time // when that was noticed
	exitCode     int
	lost         bool          // the hold was lost before the command had ended
	endRequested bool          // a signal has asked holdfast to end
	termSent     bool          // the group was sent SIGTERM
	termReceived time.Time     // when holdfast was sent SIGTERM
	killSent     bool          // the group was sent SIGKILL
	killReserve  time.Duration // after a loss SIGKILL is sent this long before the lease expires
	killAt       time.Time     // when SIGKILL is sent in any case; zero: never

	pending  []receivedSignal        // signals that are not forwarded yet
	received map[os.Signal]time.Time // when others sent the group a signal
	sent     map[os.Signal]time.Time // when holdfast sent it, unless the guardian has reported that

	signalError     string    // the last one
	nextStuckReport time.Time // when to report again that the group does not end
	nextOrder       time.Time // when the guardian gets its next order
	unguardedSince  time.Time // when the guardian ended, unless that was reported

	nextProbe  time.Time // when to search next for processes that cannot be signalled
	probeEvery time.Duration
	probed     []int // such processes that the last probe has found
	reported   []int // those that are reported
}

// receivedSignal is a signal that holdfast was sent.
type receivedSignal struct {
	sig os.Signal
	at  time.Time
}

// wait waits until the command and, as far as the system shows, its whole process group
// have ended. It returns the command's exit code.
func (s *supervisor) wait() int {
	s.received, s.sent = map[os.Signal]time.Time{}, map[os.Signal]time.Time{}
	s.orderGuardian()
	s.probeEvery, s.nextProbe = firstProbe, time.Now().Add(firstProbe)
	timer := time.NewTimer(s.untilNextCheck())
	defer timer.Stop()
	lost, groupSignals := s.hold.Context().Done(), s.child.groupSignals()
	for {
		select {
		case <-lost:
			lost = nil
			s.stopAfterLoss()
		case sig := <-s.signals:
			s.receive(sig)
		case sig, ok := <-groupSignals:
			if !ok {
				groupSignals, s.unguardedSince = nil, time.Now()
			} else {
				s.groupReceived(sig)
			}
		case sig := <-s.child.stopEvents:
			s.child.jobControl(sig, s.logSuspended, func() bool { return s.hold.Err() == nil })
		case <-s.child.stateChanged:
			s.pollCommand()
		case <-timer.C:
		}
		// Promise 7: the caller releases the lock only after the whole group has ended, also after a loss.
		if s.commandEnded && !s.child.groupRunning() {
			s.logGuardianKill()
			return s.exitCode
		}
		s.forwardPending()
		s.killIfDue()
		s.orderGuardian()
		s.probeIfDue()
		s.logIfDue()
		timer.Reset(s.untilNextCheck())
	}
}

// untilNextCheck returns how long wait may sleep unless something happens.
func (s *supervisor) untilNextCheck() time.Duration {
	if !s.commandEnded && (s.lost || s.killSent) {
		return pollInterval
	}
	next := s.nextProbe
	if !s.lost {
		next = earlier(next, s.nextOrder)
	}
	for _, p := range s.pending {
		next = earlier(next, p.at.Add(ForwardDelay))
	}
	if !s.unguardedSince.IsZero() {
		next = earlier(next, s.unguardedSince.Add(ForwardDelay))
	}
	if !s.killSent { // after that killIfDue kills at every check
		next = earlier(next, s.killAt)
		if s.lost {
			next = earlier(next, time.Now().Add(s.hold.ExpiresIn()-s.killReserve))
		}
	}
	if s.commandEnded {
		slower := min(time.Since(s.endedAt)/time.Second, 5)
		next = earlier(next, time.Now().Add(min(pollInterval<<slower, slowestPoll)))
	}
	return max(time.Until(next), time.Millisecond)
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// pollCommand checks whether the command itself has ended.
func (s *supervisor) pollCommand() {
	code, ended := s.child.poll()
	if s.commandEnded || !ended {
		return
	}
	s.commandEnded, s.endedAt, s.exitCode = true, time.Now(), code
	s.detectLateLoss()
	if s.child.groupRunning() {
		s.endLeftovers()
	}
}

// detectLateLoss counts the lock as lost if the loss is noticed only after the command has
// ended: the command may have run without the lock for an unknown time.
func (s *supervisor) detectLateLoss() {
	if err := s.hold.Err(); !s.lost && errors.Is(err, holdfast.ErrLost) {
		s.lost = true
		s.log.Errorf("lost %q, perhaps before the command ended (%v)", s.hold.Name(), err)
	}
}

// stopAfterLoss stops the command within the rest of the lease. It sends SIGTERM at once;
// when a fifth of the remaining time is left, killIfDue sends SIGKILL.
func (s *supervisor) stopAfterLoss() {
	s.pollCommand() // the guardian may have killed the command while holdfast was stopped
	if s.lost {
		return
	}
	s.lost = true
	left := s.hold.ExpiresIn()
	s.killReserve = max(left/5, 0)
	if left > 0 && !s.termSent {
		s.send(syscall.SIGTERM)
	}
	s.killIfDue()
	switch unreachable := s.findUnreachable(); {
	case unreachable != "":
		s.log.Errorf("lost %q (%v); %s cannot be stopped: another may hold the lock while it runs", s.hold.Name(), s.hold.Err(), unreachable)
	case left <= 0:
		s.log.Errorf("lost %q (%v); the lease has expired: killing the command", s.hold.Name(), s.hold.Err())
	default:
		s.log.Errorf("lost %q (%v); the command has %s to stop", s.hold.Name(), s.hold.Err(), format.Duration(left-s.killReserve))
	}
}

// groupReceived records a signal that the guardian reports: one that others sent to the
// group, or the one that holdfast sent last.
func (s *supervisor) groupReceived(sig os.Signal) {
	now := time.Now()
	if now.Sub(s.sent[sig]) > SameRequestWindow {
		s.received[sig] = now
	}
	delete(s.sent, sig)
}

// receive queues a signal for the command's group. It is not forwarded at once, because the
// group may have been sent the signal too. A second SIGTERM kills the group.
func (s *supervisor) receive(sig os.Signal) {
	now := time.Now()
	s.endRequested = s.endRequested || signals.AsksToEnd(sig)
	if slices.ContainsFunc(s.pending, func(p receivedSignal) bool { return p.sig == sig }) {
		return
	}
	if sig == syscall.SIGTERM && !s.termReceived.IsZero() {
		if now.Sub(s.termReceived) > SameRequestWindow {
			s.killBy(now)
			s.killIfDue()
			s.log.Errorf("received a second SIGTERM, which asks for the command to be killed")
		}
		return
	}
	if sig == syscall.SIGTERM {
		s.termReceived = now
		if s.killAfter > 0 {
			s.killBy(now.Add(s.killAfter))
		}
	}
	s.pending = append(s.pending, receivedSignal{sig, now})
}

// forwardPending forwards the signals that others have not sent to the group. A program
// that receives a request to end twice may cut its cleanup short.
func (s *supervisor) forwardPending() {
	now := time.Now()
	s.pending = slices.DeleteFunc(s.pending, func(p receivedSignal) bool {
		switch {
		case s.received[p.sig].After(p.at.Add(-ForwardDelay)):
			s.log.Verbosef("the command's process group was already sent %s", signals.Name(p.sig))
			if signals.AsksToEnd(p.sig) {
				s.logSignalError(s.child.wake())
			}
		case s.child.groupSignals() != nil && now.Before(p.at.Add(ForwardDelay)):
			return false
		default:
			if s.send(p.sig) {
				s.log.Verbosef("forwarded %s", signals.Name(p.sig))
			}
		}
		s.termSent = s.termSent || p.sig == syscall.SIGTERM
		return true
	})
}

// send sends a signal to the group. It reports whether every process of the group was sent it, as far as the system shows.
func (s *supervisor) send(sig os.Signal) bool {
	s.sent[sig] = time.Now()
	s.termSent = s.termSent || sig == syscall.SIGTERM
	deliver := s.child.signal
	if signals.AsksToEnd(sig) {
		deliver = s.child.signalAndWake
	}
	err := deliver(sig)
	s.logSignalError(err)
	// Success for the group says nothing about the command: the guardian, a member, always is sent the signal.
	unreachable := s.findUnreachable()
	if unreachable != "" {
		s.log.Errorf("%s was not sent to %s", signals.Name(sig), unreachable)
	}
	return err == nil && unreachable == ""
}

// unreachable returns the processes of the group that holdfast may not signal.
func (s *supervisor) unreachable() []int {
	pids := s.child.unreachable()
	if len(pids) == 0 {
		return nil
	}
	if s.pollCommand(); s.commandEnded { // perhaps just now
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == s.child.pid })
	}
	return pids
}

// findUnreachable returns a text with the processes of the group that holdfast may not signal, or "".
func (s *supervisor) findUnreachable() string {
	return processes(s.unreachable())
}

// probeIfDue reports soon, not only when a signal must be sent, that the command has become another user. It reports a process
// once, when two probes in turn have found it.
func (s *supervisor) probeIfDue() {
	now := time.Now()
	if now.Before(s.nextProbe) {
		return
	}
	s.probeEvery = min(2*s.probeEvery, lastProbe)
	s.nextProbe = now.Add(s.probeEvery)
	found := s.unreachable()
	for _, pid := range found {
		switch {
		case slices.Contains(s.reported, pid):
		case slices.Contains(s.probed, pid):
			s.reported = append(s.reported, pid)
			s.log.Errorf("cannot signal process %d of the command, which runs as another user: if %q is lost, nothing stops it, and it "+
				"runs beside the next holder; run holdfast itself as that user", pid, s.hold.Name())
		default:
			s.nextProbe = now.Add(secondProbe)
		}
	}
	s.probed = found
}

// endLeftovers ends the processes that the command has left behind in its group: they would
// go on working without the lock. Processes that were already asked to end, together with
// the command, get as much time as the command would have had.
func (s *supervisor) endLeftovers() {
	action := "waiting for them; they were asked to end too"
	if !s.termSent && s.termReceived.IsZero() {
		s.send(syscall.SIGTERM)
		s.killBy(time.Now().Add(leftoverTimeout))
		action = "ending them"
	}
	s.nextStuckReport = time.Now().Add(stuckReportInterval)
	s.log.Infof("the command has ended, but processes that it started are still running in process group %d: %s", s.child.pid, action)
}

// killBy schedules SIGKILL for a time, unless an earlier one is scheduled.
func (s *supervisor) killBy(t time.Time) { s.killAt = earlier(s.killAt, t) }

// killIfDue kills the group when it is time. It does so again at every poll, because the
// group may have a new member.
func (s *supervisor) killIfDue() {
	// Promise 2: after a loss the group is killed before the lease can expire.
	expiring := s.lost && s.hold.ExpiresIn() <= s.killReserve
	if !expiring && (s.killAt.IsZero() || time.Now().Before(s.killAt)) {
		return
	}
	s.logSignalError(s.child.kill())
	if s.killSent {
		return
	}
	s.killSent, s.nextStuckReport = true, time.Now().Add(stuckReportInterval)
	if unreachable := s.findUnreachable(); unreachable != "" {
		s.log.Errorf("%s was not killed", unreachable)
	} else {
		s.log.Infof("killing process group %d", s.child.pid)
	}
}

// orderGuardian gives the guardian its next order: to kill the group when a tenth of the
// grace is left. After a loss holdfast itself kills it earlier, with a fifth left. Each
// renewal postpones the order; the lease is checked often enough to notice a renewal at the
// last moment.
func (s *supervisor) orderGuardian() {
	now := time.Now()
	if s.lost || now.Before(s.nextOrder) {
		return
	}
	lostIn := s.hold.LostIn()
	grace := s.hold.ExpiresIn() - lostIn
	s.nextOrder = now.Add(max(lostIn/2, grace/4))
	if s.hold.Err() != nil { // the context notices a suspend of the system only later
		s.stopAfterLoss()
		return
	}
	// Promise 2: if holdfast is stopped or stuck, the guardian kills the group before the lease expires.
	if err := s.child.orderKill(func() time.Duration { return s.hold.ExpiresIn() - grace/10 }, grace/10); err != nil {
		s.log.Verbosef("cannot reach the guardian of process group %d: %v", s.child.pid, err)
	}
}
