//go:build unix

package rivals

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// BenchmarkEtcdRivals prints two tables.
func BenchmarkEtcdRivals(b *testing.B) {
	etcdRivals.run(b)
	fmt.Println("| | two holders after a pause, for |")
	for _, n := range etcdRivals.names {
		fmt.Println("|", n, "|", afterPause(b, n), "|")
	}
}

// afterPause is how long a holder that was paused believes that it holds the lock, after another has got it.
func afterPause(b *testing.B, n string) string {
	b.Helper()
	server, kind := etcdtest.Start(b).Addr(), b.Name()+"/"+n
	settle(b, etcdURL(server))
	holder := start(b, kind, server)
	<-holder.held
	waiter := start(b, kind, server)
	if err := holder.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		b.Error(err)
	}
	if got := after(waiter.held, time.Now()); strings.HasPrefix(got, "not") {
		return "none: not granted " + got
	}
	select {
	case <-holder.lost:
		b.Error(n, "was notified before it was paused")
	default:
	}
	begin := time.Now()
	if err := holder.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		b.Error(err)
	}
	return after(holder.lost, begin)
}
