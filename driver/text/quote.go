package text

import (
	"fmt"
	"strconv"
	"strings"
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

// QuoteName quotes the name of something in a URL, such as a parameter, if it looks like a
// name. Otherwise the result is "not shown": a URL that was written by mistake may have a key
// or a part of a password there.
func QuoteName(name string) string {
	const maxBytes = 40
	if name == "" || len(name) > maxBytes || strings.ContainsFunc(name, isNoNameRune) {
		return "not shown"
	}
	return strconv.Quote(name)
}

func isNoNameRune(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && ('0' > r || r > '9') && r != '-' && r != '_' && r != '.'
}
