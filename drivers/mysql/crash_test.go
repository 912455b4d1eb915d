package mysql

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// A server that flushes each commit is killed again and again while clients compete. No two hold the lock at once, and no token falls.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--sync-binlog=1"}})
	var lockers []driver.Locker
	for range 4 {
		lockers = append(lockers, openAt(t, s.URL(), WithCommandTimeout(time.Second)))
	}
	castest.Compete(t, castest.Competition{Lockers: lockers, TTL: 20 * time.Second, Faults: 5, Fault: func(int) error {
		return s.Crash(t.Context())
	}})
}
