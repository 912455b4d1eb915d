package redis

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// A server that writes each command to disk before its answer is killed again and again while clients compete. No two hold the lock at
// once, and no token falls.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	var lockers []driver.Locker
	for range 4 {
		lockers = append(lockers, openAt(t, s.URL(), WithCommandTimeout(time.Second)))
	}
	castest.Compete(t, castest.Competition{Lockers: lockers, TTL: 20 * time.Second, Faults: 5, Fault: func(int) error {
		return s.Crash(t.Context())
	}})
}
