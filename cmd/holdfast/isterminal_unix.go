//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	raw, err := f.SyscallConn() // Fd would make a non-blocking file a blocking one
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		is = err == nil
	})
	return is && err == nil
}

// localeIsUTF8 is false where the locale says whether the terminal shows UTF-8.
const localeIsUTF8 = false
