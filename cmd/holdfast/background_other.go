//go:build !linux

package main

// writeInBackground: these systems give a thread of Go no signal mask of its own. After
// "stty tostop" a message stops holdfast while the command has the terminal.
func writeInBackground() (end func()) { return func() {} }
