//go:build !linux

package messages

// blockSIGTTOU does nothing: on these systems Go cannot set the signal mask of one thread.
// After "stty tostop" a message stops a holdfast that runs in the background.
func blockSIGTTOU() (undo func()) { return func() {} }
