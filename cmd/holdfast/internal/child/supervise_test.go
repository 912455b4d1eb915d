//go:build unix

package child

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A loss that is noticed only after the command has ended counts as a loss and is reported.
func TestLossNoticedAfterCommandEnded(t *testing.T) {
	var out bytes.Buffer
	hold := newTestLease(time.Second, time.Second)
	s := supervisor{hold: hold, child: startCommand(t, "exit 0"), log: messages.NewLog(&out, false, false)}
	locktest.Eventually(t, "the command ends", func() bool { s.pollCommand(); return s.commandEnded })
	if want := `lost "job", perhaps before the command ended`; !s.lost || strings.Count(out.String(), want) != 1 {
		t.Errorf("lost: %v; messages:\n%swant once: %s", s.lost, out.String(), want)
	}
}

// A group that gets a new member after SIGKILL gets SIGKILL again.
func TestNewGroupMemberIsKilled(t *testing.T) {
	c := startCommand(t, "exec sleep 100")
	s := supervisor{hold: newTestLease(time.Minute, time.Second), child: c, log: messages.NewLog(io.Discard, false, false), killAt: time.Now()}
	s.killIfDue()
	// The command is not reaped yet, so its group can still be joined.
	process, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exec sleep 100"},
		&os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true, Pgid: c.pid}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := process.Wait()
		ended <- state
	}()
	s.killIfDue()
	select {
	case state := <-ended:
		if status := state.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Errorf("the new member has ended: %v", state)
		}
	case <-time.After(patience):
		_ = process.Kill()
		<-ended
		t.Error("the new member was not killed")
	}
}

// A second SIGTERM kills the command, unless it comes so soon that it is the same request: a
// service manager and each wrapper may send one.
func TestSecondSIGTERM(t *testing.T) {
	command := startCommand(t, "trap '' TERM; exec sleep 100")
	synctest.Test(t, func(t *testing.T) {
		s := supervisor{child: command, log: messages.NewLog(new(bytes.Buffer), false, false)}
		s.receive(syscall.SIGTERM)
		s.pending = nil // as if it was forwarded
		time.Sleep(SameRequestWindow / 2)
		s.receive(syscall.SIGTERM)
		if s.killSent || !s.killAt.IsZero() || len(s.pending) > 0 {
			t.Errorf("within %v: killed: %v, pending: %v", SameRequestWindow, s.killSent, s.pending)
		}
		time.Sleep(SameRequestWindow/2 + time.Millisecond)
		s.receive(syscall.SIGTERM)
		if !s.killSent || !s.endRequested {
			t.Errorf("after %v: killed: %v, asked to end: %v", SameRequestWindow, s.killSent, s.endRequested)
		}
	})
}

// A signal to the group succeeds although it does not reach the command: the guardian is a member. What holdfast says
// follows from a probe of the command's own process.
func TestSignalThatDoesNotReachTheCommand(t *testing.T) {
	var out bytes.Buffer
	c := startCommand(t, "trap '' TERM INT; exec sleep 100")
	denied := false
	c.probe = func(pid int) error {
		if denied && pid == c.pid {
			return syscall.EPERM
		}
		return nil
	}
	s := supervisor{hold: newTestLease(time.Minute, time.Second), child: c, log: messages.NewLog(&out, false, true),
		received: map[os.Signal]time.Time{}, sent: map[os.Signal]time.Time{}}
	forward := func(sig os.Signal) {
		s.receive(sig)
		for s.forwardPending(); len(s.pending) > 0; s.forwardPending() {
			time.Sleep(time.Millisecond)
		}
	}
	expect := func(text string, times int) {
		t.Helper()
		text = strings.ReplaceAll(text, "PID", strconv.Itoa(c.pid))
		if got := strings.Count(out.String(), text); got != times {
			t.Errorf("%d times, not %d: %s\n%s", got, times, text, out.String())
		}
	}
	forward(syscall.SIGINT)
	expect("forwarded SIGINT", 1)
	expect("PID", 0)
	// The error comes long before a signal. But only two probes in turn tell that it is no helper which has ended meanwhile.
	probe := func(refused bool) {
		denied, s.nextProbe, s.probeEvery = refused, time.Time{}, lastProbe
		s.probeIfDue()
	}
	for _, refused := range []bool{true, false, true} {
		probe(refused)
	}
	expect("cannot signal process PID", 0)
	if wait := time.Until(s.nextProbe); wait > lastProbe/2 {
		t.Errorf("the second probe is only due in %v", wait)
	}
	probe(true)
	probe(true)
	expect("cannot signal process PID", 1)
	forward(syscall.SIGTERM)
	expect("forwarded SIGTERM", 0)
	expect("SIGTERM was not sent to process PID", 1)
	expect("cannot signal process PID", 1)

	// Nor has a guardian that says so stopped the command.
	ended := make(chan struct{})
	close(ended)
	answered := &Child{pid: c.pid, probe: c.probe, guardian: &guardian{process: c.guardian.process, inTime: true, ended: ended}}
	if answered.StoppedInTime(patience) {
		t.Error("the command counts as stopped")
	}
	denied = false
	if !answered.StoppedInTime(patience) {
		t.Error("the command does not count as stopped")
	}
}

// A signal that the command's group was sent too is not forwarded, whether it asks to end or
// not. A signal that only holdfast was sent is forwarded, even soon after another.
func TestSignalSentToWholeGroup(t *testing.T) {
	for _, sig := range append(slices.Clone(signals.Ending), signals.Other...) {
		command := startCommand(t, "exec sleep 100")
		synctest.Test(t, func(t *testing.T) { signalSentToWholeGroup(t, command, sig) })
	}
}

func signalSentToWholeGroup(t *testing.T, command *Child, sig os.Signal) {
	s := supervisor{child: command, log: messages.NewLog(new(bytes.Buffer), false, false),
		received: map[os.Signal]time.Time{}, sent: map[os.Signal]time.Time{}}
	step := func(sentToGroup, want bool) {
		t.Helper()
		if sentToGroup {
			s.groupReceived(sig)
		}
		s.receive(sig)
		for s.forwardPending(); len(s.pending) > 0; s.forwardPending() {
			time.Sleep(time.Millisecond)
		}
		if forwarded := !s.sent[sig].IsZero(); forwarded != want {
			t.Errorf("%v: forwarded: %v, want %v", sig, forwarded, want)
		}
		if want {
			s.groupReceived(sig) // the guardian reports the forwarded one too
		}
		s.termReceived = time.Time{}
	}
	step(true, false)
	time.Sleep(2 * ForwardDelay)
	step(false, true)
	step(true, false)
	if s.endRequested != slices.Contains(signals.Ending, sig) {
		t.Errorf("%v: asks to end: %v", sig, s.endRequested)
	}
}

// The command is not started without the lock, also if a pause while its guardian started has cost it.
func TestTheLockIsCheckedJustBeforeTheStart(t *testing.T) {
	children := func() int {
		ownChildren.mu.Lock()
		defer ownChildren.mu.Unlock()
		return len(ownChildren.pids)
	}
	before := children()
	c, _, err := Start("/bin/sh", []string{"sh", "-c", "exit 7"}, os.Environ(), func() error {
		if children() != before+1 {
			t.Error("the lock was checked before the guardian was started")
		}
		return holdfast.ErrLost
	})
	if c != nil || !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if children() != before {
		t.Error("the guardian was not dismissed, or the command was started")
	}
}

// What the command has left behind is checked often at first and then seldom, since a check reads all of /proc. It is killed in time.
func TestLeftoversAreCheckedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor{hold: newTestLease(time.Hour, time.Minute), commandEnded: true, endedAt: time.Now(),
			nextOrder: time.Now().Add(time.Hour), nextProbe: time.Now().Add(time.Hour)}
		checks := func(d time.Duration) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				time.Sleep(s.untilNextCheck())
			}
			return n
		}
		if n := checks(time.Second); n < 90 {
			t.Errorf("%d checks in the first second", n)
		}
		if n := checks(4 * time.Second); n > 120 {
			t.Errorf("%d checks in the next four seconds", n)
		}
		if n := checks(time.Minute); n > 330 {
			t.Errorf("%d checks in the next minute", n)
		}
		wakesAt := func(what string, at time.Time) {
			t.Helper()
			for time.Now().Before(at) {
				time.Sleep(s.untilNextCheck())
			}
			if late := time.Since(at); late > 5*time.Millisecond {
				t.Errorf("%s: %v late", what, late)
			}
		}
		s.killAt = time.Now().Add(3*time.Second + 77*time.Millisecond)
		wakesAt("--kill-after", s.killAt)
		s.nextOrder, s.killAt = time.Now().Add(time.Second+33*time.Millisecond), time.Time{}
		wakesAt("an order of the guardian", s.nextOrder)
		s.lost, s.killReserve = true, time.Minute
		wakesAt("a loss", time.Now().Add(s.hold.ExpiresIn()-s.killReserve))
		s.killSent = true
		if n := checks(time.Minute); n > 330 {
			t.Errorf("%d checks in the minute after the kill", n)
		}
	})
}

// A group that cannot be signalled is signalled again at every check. That is logged once.
func TestSignalErrorIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	s := supervisor{child: &Child{pid: 7}, log: messages.NewLog(&out, false, true)}
	for _, err := range []error{nil, syscall.EPERM, syscall.EPERM, syscall.EINVAL, nil, syscall.EINVAL, syscall.EINVAL} {
		s.logSignalError(err)
	}
	if got, want := strings.Count(out.String(), "cannot signal process group 7"), 3; got != want {
		t.Errorf("%d messages, want %d:\n%s", got, want, out.String())
	}
}

// startCommand starts a command in a group of its own, with a guardian.
func startCommand(t *testing.T, script string) *Child {
	t.Helper()
	c, unguarded, err := Start("/bin/sh", []string{"sh", "-c", script}, os.Environ(), mayStart)
	if err != nil || unguarded != nil {
		t.Fatal(err, unguarded)
	}
	t.Cleanup(func() {
		_ = c.kill()
		_, ended := c.poll() // until then its process ID is kept from the reaper of orphans
		for deadline := time.Now().Add(patience); !ended || c.groupRunning(); time.Sleep(time.Millisecond) {
			if _, ended = c.poll(); time.Now().After(deadline) {
				t.Error("the group does not end")
				break
			}
		}
		c.Close()
	})
	return c
}

// testLease is a lease that is lost when its rest is the grace. In a bubble its time is virtual.
type testLease struct {
	mu         sync.Mutex
	ttl, grace time.Duration
	expires    time.Time
	ctx        context.Context
	lose       context.CancelFunc
}

func newTestLease(ttl, grace time.Duration) *testLease {
	l := &testLease{ttl: ttl, grace: grace}
	l.ctx, l.lose = context.WithCancel(context.Background())
	l.renew()
	return l
}

func (l *testLease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expires = time.Now().Add(l.ttl)
}

// suspend has the lease end sooner, as if the system had been suspended: the timers do not count that time.
func (l *testLease) suspend(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expires = l.expires.Add(-d)
}

func (l *testLease) Name() string             { return "job" }
func (l *testLease) Context() context.Context { return l.ctx }
func (l *testLease) LostIn() time.Duration    { return l.ExpiresIn() - l.grace }

func (l *testLease) ExpiresIn() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.expires)
}

func (l *testLease) Err() error {
	if l.LostIn() <= 0 {
		return holdfast.ErrLost
	}
	return nil
}
