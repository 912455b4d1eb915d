//go:build unix

package signals

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// Ending are the signals that ask holdfast to end. While the command runs they are forwarded to it.
	Ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	// Other are the signals that are forwarded while the command runs, and ignored at other times.
	Other = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
)

// ignoreQuit ignores SIGQUIT, also for the processes that are started from now on.
func ignoreQuit() { signal.Ignore(syscall.SIGQUIT) }

// Name returns a signal's name, such as SIGTERM.
func Name(sig os.Signal) string {
	if number, ok := sig.(syscall.Signal); ok {
		if name := unix.SignalName(number); name != "" {
			return name
		}
	}
	return sig.String()
}
