// Package text forwards to package driver.
package text

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func Duration(d time.Duration) string  { return driver.FormatDuration(d) }
func Quote(s string) string            { return driver.Quote(s) }
func ByteRange(least, most int) string { return driver.ByteRange(least, most) }
