package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// isTerminal reports whether a file is a console.
func isTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// localeIsUTF8 is true: the program's library makes the console show UTF-8.
const localeIsUTF8 = true
