package child

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dieLikeHoldfast ends the guardian's pipe, as the death of holdfast does.
func dieLikeHoldfast(t *testing.T, c *Child) {
	t.Helper()
	if err := c.guardian.orders.Close(); err != nil {
		t.Fatal(err)
	}
}

// releasers returns the arguments and environments of the releasers that were started with a file in their environment.
func releasers(t *testing.T, mark string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if bytes.HasPrefix(args, []byte(GuardianName+"\x00"+releaserArg)) && bytes.Contains(env, []byte(mark)) {
			found = append(found, string(args)+string(env))
		}
	}
	return found
}

// When holdfast has died, the locks are released once no process of the command's group is left, and not before --min-hold.
func TestTheReleaserReleases(t *testing.T) {
	for name, test := range map[string]struct {
		notBefore time.Duration
		dies      bool // holdfast does, instead of ending in order
		none      bool // there is no input
		released  bool
	}{
		"killed":                    {dies: true, released: true},
		"killed during the minimum": {dies: true, notBefore: time.Hour},
		"killed before the input":   {dies: true, none: true},
		"ended in order":            {},
	} {
		t.Run(name, func(t *testing.T) {
			mark := t.TempDir()
			file := filepath.Join(mark, "released")
			t.Setenv("HOLDFAST_TEST_MARK", mark)
			c := guardedCommand(t)
			if !test.none {
				if err := c.ReleaseAfterKill([]byte(file), []string{"HOLDFAST_TEST_MARK=of the command"}, test.notBefore); err != nil {
					t.Fatal(err)
				}
			}
			if !test.dies {
				c.guardian.dismiss()
			} else {
				dieLikeHoldfast(t, c)
				eventually(t, "the guardian dies", func() bool { return readProcess(strconv.Itoa(c.guardian.pid())).zombie })
				c.guardian.dismiss() // which reaps it
				eventually(t, "the command is killed", func() bool { _, ended := c.poll(); return ended })
			}
			if test.released {
				eventually(t, "the lock is released", func() bool { _, err := os.Stat(file); return err == nil })
			}
			eventually(t, "the releaser ends", func() bool { return len(releasers(t, mark)) == 0 }) // one was started before the kill
			if _, err := os.Stat(file); (err == nil) != test.released {
				t.Errorf("released: %v, want %v", err == nil, test.released)
			}
		})
	}
}

// The releaser waits for a process of the group that outlives the kill, and shows its input to nobody.
func TestTheReleaserWaitsForTheGroup(t *testing.T) {
	mark := t.TempDir()
	t.Setenv("HOLDFAST_TEST_MARK", mark)
	member := exec.Command("sleep", "100")
	member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	t.Cleanup(func() { _ = member.Process.Kill() })
	go func() { ended <- member.Wait() }()
	file := filepath.Join(mark, "released-S3CRET")
	input := make(chan releaserInput, 1)
	input <- releaserInput{Data: []byte(file), Marks: []string{"HOLDFAST_TEST_NAME=of no process"}}
	startReleaser(member.Process.Pid, bootClock()+time.Hour, input)
	var shown []string
	eventually(t, "the releaser runs", func() bool { shown = releasers(t, mark); return len(shown) > 0 })
	if strings.Contains(strings.Join(shown, " "), "S3CRET") {
		t.Errorf("the input is shown: %q", shown)
	}
	time.Sleep(5 * pollInterval)
	if _, err := os.Stat(file); err == nil {
		t.Fatal("the lock was released while the group had a member")
	}
	if err := member.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the member ended by itself")
	}
	eventually(t, "the lock is released", func() bool { _, err := os.Stat(file); return err == nil })
}

// A command that does not end is not waited for forever. A zombie may hide a living process of another user, and a process that has left
// the group still works. That of another lock, which can have the same token, is not waited for.
func TestTheCommandEnds(t *testing.T) {
	const token = "HOLDFAST_TEST_TOKEN=1"
	name := "HOLDFAST_TEST_NAME=" + t.TempDir()
	start := func(env ...string) *exec.Cmd {
		cmd := exec.Command("sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Env = append(os.Environ(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd
	}
	member, escaped := start(name, token), start(name, token)
	_ = start(token)
	in := releaserInput{Group: member.Process.Pid, Marks: []string{name, token}}
	goesOn := func(what string) {
		t.Helper()
		if in.commandEnds(50 * time.Millisecond) {
			t.Errorf("the command has ended, with %s", what)
		}
	}
	goesOn("a living member")
	if err := member.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member is a zombie", func() bool { return isZombie(member.Process.Pid) })
	goesOn("a zombie")
	_ = member.Wait()
	goesOn("a process that has left the group")
	if err := escaped.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !in.commandEnds(patience) { // the zombie has nothing in its environment
		t.Error("the command has not ended")
	}
	_ = escaped.Wait()
}

// An input that was written in part, because holdfast died meanwhile, counts as none.
func TestPartOfTheReleasersInput(t *testing.T) {
	whole := releaserInput{NotBefore: 7, Marks: []string{"A=b"}, Data: []byte("the data")}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(text) + 1 {
		reading, writing, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writing.Write(text[:size]); err != nil {
			t.Fatal(err)
		}
		_ = writing.Close()
		want := releaserInput{}
		if size == len(text) {
			want = whole
		}
		if in := readInput(reading); !reflect.DeepEqual(in, want) {
			t.Errorf("%d of %d bytes are read as %+v", size, len(text), in)
		}
	}
}
