//go:build !linux

package file

import (
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// systemClock is the wall clock. These systems have no clock that all processes share, that
// nobody can set, and that distinguishes boots. The package comment says what follows.
func systemClock() (clock, error) {
	host, err := os.Hostname()
	if err != nil {
		return clock{}, err
	}
	machine := machineDigest("host " + host)
	// Each machine has one boot ID, since the wall clock goes on across boots.
	return clock{now: wallTime, boot: "wall clock of " + machine, machine: machine, byHostName: true}, nil
}

func wallTime() (lockstate.Moment, error) {
	now := time.Now().UTC().Round(0)
	return lockstate.Moment{Elapsed: time.Duration(now.UnixNano()), Wall: now}, nil
}
