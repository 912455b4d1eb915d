package locktest

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
)

// Bubble runs a subtest in a bubble of its own.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Rows runs a test for each row of a table, by its name, in a bubble of its own.
func Rows[R any](t *testing.T, rows map[string]R, test func(t *testing.T, row R)) {
	t.Helper()
	for name, row := range rows {
		Bubble(t, name, func(t *testing.T) { test(t, row) })
	}
}

// UpTo has a fault happen to the first n calls of a kind.
func UpTo(op string, n int, fault Fault) Faults {
	return func(called string, k int, _ holdfast.Lease) (none Fault) {
		if called == op && k <= n {
			return fault
		}
		return none
	}
}

// Together has the fault happen that the first of several, in their order, has for a call.
func Together(several ...Faults) Faults {
	return func(op string, n int, l holdfast.Lease) (none Fault) {
		for _, faults := range several {
			if fault := faults(op, n, l); fault != none {
				return fault
			}
		}
		return none
	}
}
