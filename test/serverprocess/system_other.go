//go:build !unix

package serverprocess

import (
	"os"
	"os/exec"
	"syscall"
)

// A server can only be killed: Pause and Resume fail, and Stop is Kill.
var stopSignal, pauseSignal, resumeSignal os.Signal

// childAttributes are empty: a server outlives a test process that is killed or panics.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func isPaused(int) bool { return false }

func hasEnded(int) bool { return true }

func childrenOf(int) []int { return nil }

// There is no root whom a server could refuse.
func runUnprivileged(*exec.Cmd) error { return nil }

func giveAway(string) error { return nil }

// Reachable returns the folder: servers run as the user of the tests.
func Reachable(dir string) (string, error) { return dir, nil }
