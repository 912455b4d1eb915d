package signals

import (
	"os"
	"strconv"
	"syscall"
)

var (
	// Ending are Windows' requests to end: Ctrl-C and Ctrl-Break (os.Interrupt), and the
	// closing of the console, the session or the system (SIGTERM).
	Ending = []os.Signal{os.Interrupt, syscall.SIGTERM}
	// Other are none.
	Other []os.Signal
)

// ignoreQuit does nothing: Windows has no such signal.
func ignoreQuit() {}

// Name returns a signal's name in quotes: "interrupt" or "terminated".
func Name(sig os.Signal) string { return strconv.Quote(sig.String()) }
