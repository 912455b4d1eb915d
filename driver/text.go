package driver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// FormatDuration formats a duration without trailing units that are zero (1m instead of 1m0s),
// and whole days and years as such ("1 year" instead of 8760h0m0s).
func FormatDuration(d time.Duration) string {
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

// Quote quotes s. It shortens a long s, so that an error stays readable.
func Quote(s string) string {
	const maxBytes = 60
	if len(s) <= maxBytes {
		return strconv.Quote(s)
	}
	cut := maxBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:cut], len(s))
}

// ByteRange formats a range of sizes, such as "1 to 64 bytes". A longest of 0 means that
// there is no upper limit.
func ByteRange(shortest, longest int) string {
	if longest == 0 {
		return fmt.Sprintf("at least %d bytes", shortest)
	}
	return fmt.Sprintf("%d to %d bytes", shortest, longest)
}
