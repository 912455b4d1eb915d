package child

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
)

// supervised is a command that is supervised in virtual time, while its processes are real. Nobody follows the guardian's orders.
type supervised struct {
	*supervisor
	t       *testing.T
	command *Child
	orders  *os.File
	done    chan int
}

// superviseVirtually must be called in a bubble, with a command that was started outside.
func superviseVirtually(t *testing.T, command *Child, hold Lease, out func([]byte)) *supervised {
	t.Helper()
	orders, toGuardian, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = orders.Close() })
	c := &Child{pid: command.pid, probe: command.probe, stateChanged: make(chan os.Signal), stopEvents: make(chan os.Signal),
		guardian: &guardian{process: command.guardian.process, orders: toGuardian, signals: make(chan os.Signal), ended: make(chan struct{})}}
	log := messages.NewLog(writerFunc(out), false, true)
	s := &supervised{&supervisor{hold: hold, child: c, log: log}, t, command, orders, make(chan int, 1)}
	go func() { s.done <- s.wait() }()
	return s
}

// nextOrder returns when the guardian would kill the command, and from when on that counts as late. ok is false if it
// got no order since the last call. The orders have the time since boot, which goes on a little meanwhile.
func (s *supervised) nextOrder() (due, late time.Time, ok bool) {
	s.t.Helper()
	for {
		ready, err := waitReadable(int32(s.orders.Fd()), 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			s.t.Fatal(err)
		}
		if !ready {
			return due, late, ok
		}
		var o order
		if err := binary.Read(s.orders, binary.NativeEndian, &o); err != nil {
			s.t.Fatal(err)
		}
		boot := bootClock()
		due, late, ok = time.Now().Add(time.Duration(o.At)-boot), time.Now().Add(time.Duration(o.Late)-boot), true
	}
}

// ended waits until the command itself has ended, and returns the exit code that the supervisor reports. Virtual time
// stands still while the process ends.
func (s *supervised) ended() int {
	s.t.Helper()
	if err := unix.Waitid(unix.P_PID, s.command.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		s.t.Fatal(err)
	}
	close(s.child.guardian.signals)
	s.child.stateChanged <- syscall.SIGCHLD
	return <-s.done
}

// The guardian gets a new order before the last one is due for as long as the lock is renewed, and each order is due before the
// lease ends. So it never kills a command whose lock is held, and always one whose holdfast no longer renews.
func TestOrdersFollowTheLease(t *testing.T) {
	const ttl, grace, step = time.Hour, 10 * time.Minute, 10 * time.Second
	command := startCommand(t, "exec sleep 600")
	synctest.Test(t, func(t *testing.T) {
		hold := newTestLease(ttl, grace)
		s := superviseVirtually(t, command, hold, func([]byte) {})
		var due time.Time
		for begin, renewed := time.Now(), time.Now(); time.Since(begin) < 10*ttl && !t.Failed(); time.Sleep(step) {
			synctest.Wait()
			if next, late, ok := s.nextOrder(); ok {
				due = next
				left := hold.expires.Sub(next)
				if left < grace/20 || left > grace/5 || late.After(hold.expires) || !late.After(next) {
					t.Errorf("an order is due %v before the lease ends, and late %v before", left, hold.expires.Sub(late))
				}
			}
			if !due.After(time.Now().Add(step)) {
				t.Errorf("after %v the command would be killed, although its lock is held for another %v", time.Since(begin), hold.ExpiresIn())
			}
			// Some renewals are early, and some come at the last moment.
			if now := time.Now(); now.Sub(renewed) >= ttl/3 && now.Unix()%3 == 0 || hold.LostIn() <= step {
				hold.renew()
				renewed = now
			}
		}
		if err := s.child.kill(); err != nil {
			t.Fatal(err)
		}
		if code := s.ended(); code != exitcode.Signal+int(syscall.SIGKILL) {
			t.Errorf("exit code %d", code)
		}
	})
}

// startDeafCommand starts a command that ignores SIGTERM, and returns when it does.
func startDeafCommand(t *testing.T) *Child {
	t.Helper()
	deaf := filepath.Join(t.TempDir(), "deaf")
	command := startCommand(t, `trap "" TERM; : >"`+deaf+`"; while :; do sleep 0.02; done`)
	eventually(t, "the command ignores SIGTERM", func() bool { _, err := os.Stat(deaf); return err == nil })
	return command
}

// After a loss the group gets SIGTERM at once, and SIGKILL when a fifth of the rest of the lease is left.
func TestGroupIsKilledBeforeTheLeaseEnds(t *testing.T) {
	const ttl, grace = time.Minute, 10 * time.Second
	command := startDeafCommand(t)
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		hold := newTestLease(ttl, grace)
		killed := make(chan time.Time, 1)
		s := superviseVirtually(t, command, hold, func(line []byte) {
			if out.Write(line); bytes.Contains(line, []byte("killing process group")) {
				killed <- time.Now()
			}
		})
		time.Sleep(ttl - grace)
		lost := time.Now()
		hold.lose()
		at := <-killed
		if code := s.ended(); code != exitcode.Signal+int(syscall.SIGKILL) || !s.lost {
			t.Errorf("exit code %d, lost: %v", code, s.lost)
		}
		if s.sent[syscall.SIGTERM] != lost {
			t.Errorf("SIGTERM was sent at %v, the loss was at %v", s.sent[syscall.SIGTERM], lost)
		}
		if after := at.Sub(lost); after < grace*4/5 || after > grace*4/5+pollInterval {
			t.Errorf("SIGKILL was sent %v after the loss, and %v before the lease ended", after, hold.expires.Sub(at))
		}
	})
	for _, want := range []string{`lost "job" (lease lost); the command has 8s to stop`, "killing process group"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("messages:\n%swant once: %s", out.String(), want)
		}
	}
}

// A hold knows of a loss by a suspend before its context ends: what asks it stops the command at once, and reports the loss once.
func TestLossThatTheContextReportsLate(t *testing.T) {
	const ttl, grace, suspended = time.Hour, 30 * time.Minute, 40 * time.Minute
	command := startDeafCommand(t)
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		hold := newTestLease(ttl, grace)
		s := superviseVirtually(t, command, hold, func(line []byte) { out.Write(line) })
		synctest.Wait()
		s.nextOrder() // the first
		next := s.supervisor.nextOrder
		hold.suspend(suspended)
		time.Sleep(time.Until(next))
		synctest.Wait()
		if s.sent[syscall.SIGTERM] != next {
			t.Errorf("SIGTERM was sent at %v, the loss was seen at %v", s.sent[syscall.SIGTERM], next)
		}
		if due, _, ok := s.nextOrder(); ok {
			t.Errorf("after the loss the guardian got an order, which is due at %v", due)
		}
		hold.lose()
		synctest.Wait()
		if err := s.child.kill(); err != nil {
			t.Fatal(err)
		}
		if code := s.ended(); code != exitcode.Signal+int(syscall.SIGKILL) || !s.lost {
			t.Errorf("exit code %d, lost: %v", code, s.lost)
		}
	})
	if want := `lost "job" (lease lost); the command has`; strings.Count(out.String(), want) != 1 {
		t.Errorf("messages:\n%swant once: %s", out.String(), want)
	}
}

// The guardian may have killed the command before the loss is noticed: then nothing is left to be stopped.
func TestLossNoticedBeforeTheEndOfTheCommand(t *testing.T) {
	var out bytes.Buffer
	command := startCommand(t, "exit 0")
	if err := unix.Waitid(unix.P_PID, command.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	s := supervisor{hold: newTestLease(time.Second, time.Second), child: command, log: messages.NewLog(&out, false, false)}
	s.orderGuardian()
	if want := `lost "job", perhaps before the command ended`; !s.commandEnded || !strings.Contains(out.String(), want) ||
		strings.Count(out.String(), "\n") != 1 {
		t.Errorf("ended: %v; messages:\n%swant only: %s", s.commandEnded, out.String(), want)
	}
}
