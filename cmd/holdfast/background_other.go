//go:build !linux

package main

// writeInBackground: these systems give a thread of Go no signal mask of its own. After
// "stty tostop" a message stops a holdfast in the background.
func writeInBackground() (end func()) { return func() {} }
