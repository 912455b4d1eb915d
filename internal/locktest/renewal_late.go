package locktest

import (
	"github.com/holdfast-go/holdfast"
)

// Replies of renewals that come after their time limit. With the default TTL of 30 s the
// first renewal is sent at 10 s and given up at 13.75 s, the second is sent at 14 s.

// Renewals has the first renewals meet these faults, in order, and all others fail.
func Renewals(first ...Fault) func(op string, n int, _ holdfast.Lease) Fault {
	return func(op string, n int, _ holdfast.Lease) Fault {
		switch {
		case op != OpRenew:
			return Fault{}
		case n <= len(first):
			return first[n-1]
		}
		return Fault{Refuse: ErrInjected}
	}
}
