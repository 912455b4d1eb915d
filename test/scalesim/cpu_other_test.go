//go:build !unix

package scalesim

import "time"

// processCPU returns 0: the processor time is measured on Unix systems only.
func processCPU() time.Duration { return 0 }
