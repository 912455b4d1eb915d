package child

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// guardedCommand starts a command and waits until its guardian has joined its group.
func guardedCommand(t *testing.T) *Child {
	t.Helper()
	c := startCommand(t, "exec sleep 100")
	giveOrder(t, c, time.Hour)
	eventually(t, "the guardian joins the group", func() bool {
		return readProcess(strconv.Itoa(c.guardian.pid())).group == c.pid
	})
	return c
}

// testReserve is how long after the kill the lease of a test expires, long enough for a busy machine.
const testReserve = 20 * time.Second

// giveOrder orders the guardian to kill the group after a time. If this process is paused meanwhile, the
// order times out, and is given again.
func giveOrder(t *testing.T, c *Child, left time.Duration) {
	t.Helper()
	eventually(t, "the guardian gets an order", func() bool {
		err := c.orderKill(func() time.Duration { return left }, testReserve)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	})
}

var eventually = locktest.Eventually

// stop stops a child and waits until each of its threads has stopped. It returns false if the child
// had ended before.
func stop(t *testing.T, pid int) bool {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var state unix.Siginfo // one that has ended never stops
	if err := unix.Waitid(unix.P_PID, pid, &state, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return state.Code == cldStopped
}

// cldStopped is CLD_STOPPED of sigaction(2).
const cldStopped = 5

// A group's ID is not reused after the command was reaped, for as long as holdfast uses it: a
// signal to the group must not reach a stranger.
func TestGroupIDIsNotReused(t *testing.T) {
	c := guardedCommand(t)
	if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is reaped", func() bool { _, ended := c.poll(); return ended })
	if err := syscall.Kill(-c.pid, 0); err != nil {
		t.Errorf("the ID of the group is free: %v", err)
	}
	if !groupAlive(c.pid, 0) || groupAlive(c.pid, c.guardian.pid()) {
		t.Error("the guardian is not the only member of the group")
	}

	// The same holds if the guardian was killed with the group.
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guardian dies", func() bool { return readProcess(strconv.Itoa(c.guardian.pid())).zombie })
	if err := syscall.Kill(-c.pid, 0); err != nil {
		t.Errorf("the ID of the group is free: %v", err)
	}
	if c.groupRunning() {
		t.Error("a group without a living member counts as running")
	}
}

// Sending an order does not block if the guardian is stopped.
func TestOrderToStoppedGuardian(t *testing.T) {
	c := guardedCommand(t)
	if !stop(t, c.guardian.pid()) {
		t.Fatal("the guardian has ended")
	}
	full := make(chan struct{})
	go func() {
		defer close(full)
		for c.orderKill(func() time.Duration { return time.Hour }, testReserve) == nil {
		}
	}()
	select {
	case <-full:
	case <-time.After(patience):
		t.Error("an order waits for the guardian")
	}
}

// An order whose time limit is over because holdfast was paused is written again, and one for a stopped
// guardian is not repeated forever.
func TestLateOrderIsWrittenAgain(t *testing.T) {
	for _, test := range []struct{ late, want int }{{0, 1}, {1, 2}, {9, 2}} {
		writes := 0
		err := againIfLate(func() error {
			if writes++; writes <= test.late {
				return os.ErrDeadlineExceeded
			}
			return nil
		})
		if writes != test.want || (err != nil) != (test.late > 1) {
			t.Errorf("%d late: %d writes, error %v", test.late, writes, err)
		}
	}
}

// A guardian that was stopped until its order was overdue reads the later orders before it
// kills: the lock was renewed all the time.
func TestGuardianReadsLaterOrdersFirst(t *testing.T) {
	var c *Child
	deadline := time.Now().Add(patience)
	for inTime := false; !inTime; { // again if the first order was due before the guardian was stopped
		if time.Now().After(deadline) {
			t.Fatal("no guardian was stopped before its order was due")
		}
		c = guardedCommand(t)
		due := bootClock() + time.Second
		giveOrder(t, c, time.Second)
		inTime = stop(t, c.guardian.pid()) && bootClock() < due
	}
	for range 10 { // each is due before it is read
		giveOrder(t, c, 0)
	}
	giveOrder(t, c, time.Hour)
	time.Sleep(1100 * time.Millisecond) // the order that it has read is due too
	if err := syscall.Kill(c.guardian.pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if code, ended := c.poll(); ended {
		t.Fatalf("the command has ended with exit code %d", code)
	}
	giveOrder(t, c, 10*time.Millisecond)
	eventually(t, "the command is killed when the last order is due", func() bool { _, ended := c.poll(); return ended })
	if c.groupRunning() || !c.guardianKilled() {
		t.Error("the guardian has not reported that it killed the group")
	}
}

// While holdfast is stopped, its lease expires although the guardian has stopped the command in time. That counts as stopped. A guardian
// that was stopped as well reports that it was late.
func TestGuardianSaysWhetherItWasInTime(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, late := range []bool{false, true} {
		c := guardedCommand(t)
		if late {
			if !stop(t, c.guardian.pid()) {
				t.Fatal("the guardian has ended")
			}
			giveOrder(t, c, -testReserve)
			if c.StoppedInTime(limit) {
				t.Error("a command that still runs counts as stopped")
			}
			if err := syscall.Kill(c.guardian.pid(), syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		} else {
			giveOrder(t, c, 0)
		}
		eventually(t, "the guardian kills the command", func() bool { _, ended := c.poll(); return ended })
		eventually(t, "the guardian's reports end", func() bool {
			select {
			case <-c.guardian.ended:
				return true
			default:
				return false
			}
		})
		if got := c.StoppedInTime(limit); got == late {
			t.Errorf("the guardian was late: %v; stopped in time: %v", late, got)
		}
	}
}

// The guardian reports the signals that are sent to the group. Only SIGKILL ends it.
func TestGuardianReportsSignals(t *testing.T) {
	c := guardedCommand(t)
	for _, sig := range append(slices.Clone(signals.Ending), signals.Other...) {
		if err := c.signal(sig); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-c.groupSignals():
			if got != sig {
				t.Errorf("reported: %v, want %v", got, sig)
			}
		case <-time.After(patience):
			t.Fatalf("%v was not reported", sig)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGALRM} {
		if err := c.signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-c.groupSignals():
		if got != syscall.SIGTERM {
			t.Errorf("reported: %v", got)
		}
	case <-time.After(patience):
		t.Error("the guardian has stopped or ended")
	}
}

// A guardian that was started reports even the first signal. One that a signal has ended before
// it was ready is replaced.
func TestStartedGuardianIsReady(t *testing.T) {
	deadline := time.Now().Add(patience)
	for n := 0; n < 10; n++ {
		begin := time.Now()
		g, err := startGuardian()
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) >= readyTimeout { // holdfast does not wait for one that is this slow
			if g.dismiss(); begin.After(deadline) {
				t.Fatal("no guardian is ready in time")
			}
			n--
			continue
		}
		if err := g.process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-g.signals:
			if got != syscall.SIGTERM {
				t.Errorf("reported: %v", got)
			}
		case <-time.After(patience):
			t.Error("SIGTERM was not reported")
		}
		g.dismiss()
	}
}
