package clock

import (
	"syscall"
	"time"
)

var getTickCount64 = syscall.NewLazyDLL("kernel32.dll").NewProc("GetTickCount64")

// Elapsed reads GetTickCount64, the milliseconds since the system started. It advances in steps
// of 10 to 16 ms, far below any grace.
//
// Promise 8: setting the wall clock does not change it, and it counts sleep and hibernation.
func Elapsed() time.Duration {
	if getTickCount64.Find() != nil {
		return Monotonic()
	}
	lo, hi, _ := getTickCount64.Call()
	ms := uint64(lo)
	if ^uintptr(0)>>32 == 0 { // 32-bit: the upper half comes in the second register
		ms |= uint64(hi) << 32
	}
	return time.Duration(ms) * time.Millisecond
}
