//go:build !unix

package serverprocess

import (
	"os"
	"syscall"
)

// A server can only be killed: Pause and Resume fail, and Stop is Kill.
var stopSignal, pauseSignal, resumeSignal os.Signal

// childAttributes is nil: a server outlives a test process that is killed or panics.
func childAttributes() *syscall.SysProcAttr { return nil }

func isPaused(int) bool { return false }
