package text

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Quote quotes s and cuts it so that an error stays readable.
func Quote(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:cut], len(s))
}

// ByteRange says in words what numbers of bytes are allowed; most is 0 for no limit.
func ByteRange(least, most int) string {
	if most == 0 {
		return fmt.Sprintf("at least %d bytes", least)
	}
	return fmt.Sprintf("%d to %d bytes", least, most)
}
