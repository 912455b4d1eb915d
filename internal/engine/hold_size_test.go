package engine

import (
	"testing"
	"unsafe"
)

// A process may hold 100,000 locks. Go gives 288 bytes to what needs more than 256, and 320 to what needs one more than 288.
func TestHoldIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Hold{}); size > 288 {
		t.Errorf("a hold has %d bytes, at most 288 are wanted", size)
	}
}
