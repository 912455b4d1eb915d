//go:build unix

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A loss that is seen only when the command has ended is a loss, and is reported.
func TestLossSeenAtTheEnd(t *testing.T) {
	locker := &scriptedLocker{}
	var out bytes.Buffer
	run := newRun(t, locker, 300*time.Millisecond, &out, "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	locker.mute.Store(true)
	select {
	case <-hold.Context().Done():
	case <-time.After(patience):
		t.Fatal("the lock is not lost")
	}
	s := supervisor{hold: hold, child: startCommand(t, "exit 0"), say: run.say}
	for deadline := time.Now().Add(patience); !s.ended; time.Sleep(time.Millisecond) {
		if s.look(); time.Now().After(deadline) {
			t.Fatal("the command does not end")
		}
	}
	if want := `lost "job", perhaps before the command ended`; !s.lost || strings.Count(out.String(), want) != 1 {
		t.Errorf("lost: %v; said:\n%swant once: %s", s.lost, out.String(), want)
	}
}

// A group that has a new member after it was killed is killed again.
func TestKilledAgain(t *testing.T) {
	run := newRun(t, &scriptedLocker{}, time.Minute, new(bytes.Buffer), "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	c := startCommand(t, "exec sleep 100")
	s := supervisor{hold: hold, child: c, say: run.say, killAt: time.Now()}
	s.killIfDue()
	// The command is not reaped yet, so its group is still there to be joined.
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
			t.Errorf("it has ended: %v", state)
		}
	case <-time.After(patience):
		_ = process.Kill()
		<-ended
		t.Error("it was not killed")
	}
}

// A second SIGTERM kills the command, but not one that is the same request: a service
// manager, and each wrapper, may send it once more within moments.
func TestSecondSIGTERM(t *testing.T) {
	run := newRun(t, &scriptedLocker{}, time.Minute, new(bytes.Buffer), "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	s := supervisor{hold: hold, child: startCommand(t, "trap '' TERM; exec sleep 100"), say: run.say}
	s.pass(syscall.SIGTERM)
	s.termAt = time.Now().Add(-sameRequest / 2) // passed on by now
	s.pending = nil
	s.pass(syscall.SIGTERM)
	if s.killed || !s.killAt.IsZero() || len(s.pending) > 0 {
		t.Errorf("within %v: killed: %v, to be passed on: %v", sameRequest, s.killed, s.pending)
	}
	s.termAt = time.Now().Add(-sameRequest - time.Millisecond)
	s.pass(syscall.SIGTERM)
	if !s.killed || !s.ending {
		t.Errorf("after %v: killed: %v, ending: %v", sameRequest, s.killed, s.ending)
	}
}

// No signal is passed on that the command's group was sent, too, whether it asks to end or not.
// One that was sent to holdfast alone is, also soon after another.
func TestSignalOfTheWholeGroup(t *testing.T) {
	run := newRun(t, &scriptedLocker{}, time.Minute, new(bytes.Buffer), "")
	for _, sig := range append(slices.Clone(endingSignals), otherSignals...) {
		s := supervisor{child: startCommand(t, "exec sleep 100"), say: run.say,
			heard: map[os.Signal]time.Time{}, sent: map[os.Signal]time.Time{}}
		step := func(others, want bool) {
			t.Helper()
			if others {
				s.hear(sig)
			}
			s.pass(sig)
			for s.passPending(); len(s.pending) > 0; s.passPending() {
				time.Sleep(time.Millisecond)
			}
			if passed := !s.sent[sig].IsZero(); passed != want {
				t.Errorf("%v: passed on: %v, want %v", sig, passed, want)
			}
			if want {
				s.hear(sig) // the guardian reports it, too
			}
			s.termAt = time.Time{}
		}
		step(true, false)
		time.Sleep(2 * hearWithin)
		step(false, true)
		step(true, false)
		if s.ending != slices.Contains(endingSignals, sig) {
			t.Errorf("%v: asks to end: %v", sig, s.ending)
		}
	}
}

// startCommand starts a command in a group of its own, with a guardian.
func startCommand(t *testing.T, script string) *child {
	t.Helper()
	c, unguarded, err := startChild("/bin/sh", []string{"sh", "-c", script}, os.Environ())
	if err != nil || unguarded != nil {
		t.Fatal(err, unguarded)
	}
	t.Cleanup(func() {
		_ = c.kill()
		for deadline := time.Now().Add(patience); c.remains(); time.Sleep(time.Millisecond) {
			if c.poll(); time.Now().After(deadline) {
				t.Error("the group does not end")
				break
			}
		}
		c.close()
	})
	return c
}
