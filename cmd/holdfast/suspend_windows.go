package main

import "os"

// suspendGroup does nothing: Windows has no job control.
func suspendGroup() (continued bool) { return false }

// notifyContinued returns a channel that never gets a value.
func notifyContinued() (continued <-chan os.Signal, stop func()) { return nil, func() {} }
