//go:build unix

package main

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// The holder is stopped. The other takes over and posts. The late write of the first is refused,
// so the balance counts every entry that was posted. Then the holder is killed, and the first
// posts again.
func TestLateWriteIsRefused(t *testing.T) {
	program := processes.Build(t)
	start := func(name string) *processes.Process {
		return processes.Start(t, program, "-uri", mongotest.URI(t), "-name", name, "-ttl", "3s", "-think", "300ms")
	}
	first, second := processes.First(start("one"), start("two"), "has posted")
	second.Await("waits", 1)
	// The process is stopped while it thinks, which it does nearly all the time. It may have
	// been writing; then it looks at its context first when it continues.
	first.Await("decides", 2)
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second.Await("has posted", 2)
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first.Await("REFUSED: the write has token", 1)
	first.Await("waits", 1)
	posted := second.Output()
	second.Kill()
	entries := len(regexp.MustCompile("has posted").FindAllString(first.Output(), -1))
	first.Await("has posted", entries+1)

	// Every entry of the second begins with the balance of the one before.
	last := 0
	for _, m := range regexp.MustCompile(`balance (\d+)`).FindAllStringSubmatch(posted, -1) {
		balance, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if last != 0 && balance != last+10 {
			t.Errorf("the balance went from %d to %d", last, balance)
		}
		last = balance
	}
}
