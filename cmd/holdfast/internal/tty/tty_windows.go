package tty

import (
	"os"

	"golang.org/x/sys/windows"
)

// IsTerminal reports whether a file is a console.
func IsTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// InBackground is false: Windows has no job control.
func InBackground(*os.File) bool { return false }

// LocaleIsUTF8 is true: the program's library makes the console show UTF-8.
const LocaleIsUTF8 = true

// SuspendGroup does nothing: Windows has no job control.
func SuspendGroup() (continued bool) { return false }

// NotifyContinued returns a channel that never gets a value.
func NotifyContinued() (continued <-chan os.Signal, stop func()) { return nil, func() {} }
