package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// maxStem is the length above which a stem is cut. With a hash and an ending it stays below
// the 255 bytes that file systems allow.
const maxStem = 150

// stem returns the file name, without its ending, for the name of a lock. Different names have
// different stems, also on a file system that ignores case, normalizes Unicode, or drops dots
// and spaces at the end. To that end a stem has only small letters, digits and -_.%~, and each
// other byte is written as %xx.
func stem(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if isPlain(c) || c == '.' && i > 0 { // a leading dot would hide the file
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	s := b.String()
	if isDevice(s) {
		s = fmt.Sprintf("%%%02x%s", s[0], s[1:])
	}
	if len(s) > maxStem {
		sum := sha256.Sum256([]byte(name))
		s = s[:maxStem/2] + "~" + hex.EncodeToString(sum[:]) // no other stem has a ~
	}
	return s
}

// isStem reports whether base may be the stem of a name.
func isStem(base string) bool {
	if len(base) == maxStem/2+1+2*sha256.Size && base[maxStem/2] == '~' {
		return true
	}
	name, err := url.PathUnescape(base)
	return err == nil && base != "" && stem(name) == base
}

// isPlain reports whether a byte stands for itself in a stem.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// isDevice reports whether the name is that of a device on Windows, which ignores the ending.
func isDevice(s string) bool {
	s, _, _ = strings.Cut(s, ".")
	switch s {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(s) == 4 && (s[:3] == "com" || s[:3] == "lpt") && '0' <= s[3] && s[3] <= '9'
}
