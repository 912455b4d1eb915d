//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// The holder is stopped within a transaction. The other takes over and posts. The transaction of the first is refused, so the
// balance is that of the entries that were posted.
func TestLateTransactionIsRefused(t *testing.T) {
	at := postgrestest.URL(t)
	program := processes.Build(t)
	start := func(name string) *processes.Process {
		return processes.Start(t, program, "-url", at, "-name", name, "-ttl", "3s", "-think", "500ms")
	}
	holder, other := processes.First(start("one"), start("two"), "has posted")
	for attempt := 1; ; attempt++ {
		holder.Await("decides", strings.Count(holder.Output(), "decides")+1)
		posted, ended := strings.Count(other.Output(), "has posted"), strings.Count(holder.Output(), "no longer posts")
		if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		other.Await("has posted", posted+2)
		if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		holder.Await("no longer posts", ended+1)
		if strings.Contains(holder.Output(), "REFUSED") {
			break
		}
		if attempt == 5 {
			t.Fatal("no late transaction was refused")
		}
		holder, other = other, holder
	}
	other.Kill()
	holder.Await("has posted", strings.Count(holder.Output(), "has posted")+1)
	holder.Kill()
	// Each of the two may have committed an entry just before it was killed.
	entries := strings.Count(holder.Output(), "has posted") + strings.Count(other.Output(), "has posted")
	var balance int
	if _, err := fmt.Sscan(postgrestest.SQL(t, at, `SELECT balance FROM accounts`), &balance); err != nil {
		t.Fatal(err)
	}
	if balance < 10*entries || balance > 10*(entries+2) {
		t.Errorf("%d entries of 10 were posted, and the balance is %d", entries, balance)
	}
}
