//go:build unix

package main

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// The holder is stopped. The other takes over and posts. The late write of the first is refused,
// so the balance counts every entry that was posted. Then the other is killed, and the first
// posts again.
func TestLateWriteIsRefused(t *testing.T) {
	serverprocess.Long(t, "needs a replica set of its own")
	program := processes.Build(t)
	start := func(name string) *processes.Process {
		return processes.Start(t, program, "-uri", mongotest.URI(t), "-name", name, "-ttl", "3s", "-think", "1s")
	}
	holder, other := processes.First(start("one"), start("two"), "has posted")
	other.Await("waits", 1)
	// The holder is stopped while it thinks. If the machine is so busy that it was stopped later, it
	// sees the loss before its next write, and nothing is refused: then the next holder is stopped.
	for attempt := 1; ; attempt++ {
		holder.Await("decides", strings.Count(holder.Output(), "decides")+1)
		seen, posted := strings.Count(holder.Output(), "waits"), strings.Count(other.Output(), "has posted")
		if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		other.Await("has posted", posted+2)
		if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		holder.Await("waits", seen+1)
		if strings.Contains(holder.Output(), "REFUSED: the write has token") {
			break
		}
		if attempt == 5 {
			t.Fatal("no late write was refused")
		}
		holder, other = other, holder
	}
	other.Kill()
	entries := strings.Count(holder.Output(), "has posted")
	holder.Await("has posted", entries+1)

	// The balance counts the entries that were posted, and perhaps the last one of the killed
	// process, which could not say so.
	printed := holder.Output()
	printed = printed[:strings.LastIndex(printed, "\n")]
	balances := regexp.MustCompile(`has posted .* balance (\d+)`).FindAllStringSubmatch(printed, -1)
	balance, err := strconv.Atoi(balances[len(balances)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	if n := len(balances) + strings.Count(other.Output(), "has posted"); balance != 10*n && balance != 10*(n+1) {
		t.Errorf("%d entries of 10 were posted, and the balance is %d", n, balance)
	}
}
