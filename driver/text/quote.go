package text

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

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
