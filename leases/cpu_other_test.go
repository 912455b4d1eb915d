//go:build !unix

package leases_test

import "time"

// processorTime is unknown.
func processorTime() time.Duration { return 0 }
