package locktest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Calls of a driver that do not return, even long after their time limit, keep none of the
// places there are for them, whatever has become of the leases meanwhile.

// DeafTo is a backend that never answers one kind of call for the locks "ill …".
func DeafTo(t *testing.T, store *memory.Store, deaf string) *Faulty {
	return NewFaulty(t, store.Locker(), func(op string, _ int, l holdfast.Lease) Fault {
		if op == deaf && strings.HasPrefix(l.Name, "ill ") {
			return Fault{Delay: time.Hour, Deaf: true, Refuse: ErrInjected}
		}
		return Fault{}
	})
}
