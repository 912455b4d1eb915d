package serverprocess

import "testing"

// Long leaves a test out of a short run, which is the one before every change; "make verify" runs it. The reason says what
// takes its time or depends on the machine.
func Long(tb testing.TB, reason string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip(reason + `: "make verify" runs it`)
	}
}
