//go:build unix

package integration

import (
	"slices"
	"syscall"
	"testing"
)

// A process is paused for longer than its lease, and another works meanwhile. When the first goes
// on, its work sees the loss.
func TestPausedProcess(t *testing.T) {
	for _, program := range []string{"gocron-locker", "gocron-elector", "cron", "redsync"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			journal, processes := startTwo(t, program, folder)
			first := journal.await(t, 1)[0]
			if err := processes[first.process].Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			second := journal.await(t, 2)[1]
			if second.what != "begin" || second.process == first.process || second.token <= first.token {
				t.Errorf("while %v was paused: %v", first, second)
			}
			if err := processes[first.process].Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the loss in the paused process", func() bool {
				return slices.Contains(journal.read(t), entry{"lost", first.process, first.token})
			})
			if last := journal.read(t)[2:]; len(last) != 1 {
				t.Errorf("what happened after the pause: %v", last)
			}
		})
	}
}
