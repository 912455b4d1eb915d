package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guardedCommand starts a command and waits until its guardian has joined its group.
func guardedCommand(t *testing.T) *child {
	t.Helper()
	c := startCommand(t, "exec sleep 100")
	if err := c.guard(func() time.Duration { return time.Hour }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guardian joins the group", func() bool {
		return processState(strconv.Itoa(c.guardian.pid())).group == c.pid
	})
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// stop stops a process and waits until each of its threads has stopped.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// The number of a group stays taken after its last member was reaped, until holdfast has
// no more use for it: a signal to it must not reach a stranger that got the number.
func TestGroupNumberStaysTaken(t *testing.T) {
	c := guardedCommand(t)
	if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is reaped", func() bool { _, ended := c.poll(); return ended })
	if err := syscall.Kill(-c.pid, 0); err != nil {
		t.Errorf("the number of the group is free: %v", err)
	}
	if !groupLives(c.pid, 0) || groupLives(c.pid, c.guardian.pid()) {
		t.Error("the group has not just one member, the guardian")
	}

	// So it does when the guardian was killed with the group.
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guardian dies", func() bool { return processState(strconv.Itoa(c.guardian.pid())).zombie })
	if err := syscall.Kill(-c.pid, 0); err != nil {
		t.Errorf("the number of the group is free: %v", err)
	}
	if c.remains() {
		t.Error("a group without a living member remains")
	}
}

// A guardian that somebody has stopped does not stop holdfast.
func TestStoppedGuardianDelaysNobody(t *testing.T) {
	c := guardedCommand(t)
	stop(t, c.guardian.pid())
	full := make(chan struct{})
	go func() {
		defer close(full)
		for c.guard(func() time.Duration { return time.Hour }) == nil {
		}
	}()
	select {
	case <-full:
	case <-time.After(patience):
		t.Error("an order waits for the guardian")
	}
}

// A guardian that was stopped for longer than its order allowed reads what came meanwhile
// before it kills: the lock was renewed all the time.
func TestGuardianReadsLaterOrdersFirst(t *testing.T) {
	c := guardedCommand(t)
	order := func(left time.Duration) {
		t.Helper()
		if err := c.guard(func() time.Duration { return left }); err != nil {
			t.Fatal(err)
		}
	}
	order(time.Second)
	stop(t, c.guardian.pid())
	for range 10 { // each is over before it is read
		order(0)
	}
	order(time.Hour)
	time.Sleep(1100 * time.Millisecond) // so is the one that it knew
	if err := syscall.Kill(c.guardian.pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if code, ended := c.poll(); ended {
		t.Fatalf("the command has ended with %d", code)
	}
	order(10 * time.Millisecond)
	eventually(t, "the command is killed when the last order is over", func() bool { _, ended := c.poll(); return ended })
	if c.remains() || !c.guardianKilled() {
		t.Error("the guardian has not reported that it killed the group")
	}
}

// The guardian hears what is sent to the group, and ends with nothing but SIGKILL.
func TestGuardianHears(t *testing.T) {
	c := guardedCommand(t)
	for _, sig := range append(slices.Clone(endingSignals), otherSignals...) {
		if err := c.signal(sig); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-c.heard():
			if got != sig {
				t.Errorf("heard %v, not %v", got, sig)
			}
		case <-time.After(patience):
			t.Fatalf("%v was not heard", sig)
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
	case got := <-c.heard():
		if got != syscall.SIGTERM {
			t.Errorf("heard %v", got)
		}
	case <-time.After(patience):
		t.Error("the guardian has stopped or ended")
	}
}

// A guardian that has been started hears the very first signal, and one that a signal has
// ended before it was ready is replaced.
func TestGuardianIsReady(t *testing.T) {
	for range 10 {
		g, err := startGuardian()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-g.heard:
			if got != syscall.SIGTERM {
				t.Errorf("heard %v", got)
			}
		case <-time.After(patience):
			t.Error("SIGTERM was not heard")
		}
		g.dismiss()
	}
}
