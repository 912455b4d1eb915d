// Package text formats values as people write them, for messages.
package text

import (
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// Duration formats a duration without trailing units that are zero (1m instead of 1m0s),
// and whole days and years as such ("1 year" instead of 8760h0m0s).
func Duration(d time.Duration) string {
	switch {
	case d >= year && d%year == 0:
		return count(int64(d/year), "year")
	case d > day && d%day == 0:
		return count(int64(d/day), "day")
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func count(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatInt(n, 10) + " " + unit
}
