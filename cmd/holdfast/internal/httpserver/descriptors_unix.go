//go:build unix

package httpserver

import (
	"math"

	"golang.org/x/sys/unix"
)

// descriptorLimit returns how many files and connections this process may have open, if there is a limit.
func descriptorLimit() (int, bool) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err != nil || uint64(limit.Cur) > math.MaxInt32 { //nolint:unconvert // it is signed on FreeBSD
		return 0, false
	}
	return int(limit.Cur), true
}
