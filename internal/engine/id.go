package engine

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// newLeaseID makes the ID of a new request.
func newLeaseID() driver.LeaseID { return driver.NewLeaseID(NewID()) }

// NewID returns a random UUID (RFC 9562, version 4). Azure accepts nothing else as a lease ID.
// It is made here because the library imports the standard library only.
func NewID() string {
	var b [16]byte
	timing.RandomBytes(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// defaultOwner is host/pid, by which people find the process that holds a lock.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
