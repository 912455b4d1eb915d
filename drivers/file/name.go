package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// longest is the length at which a stem is cut. With a hash and an ending it
// stays below the 255 bytes that file systems allow.
const longest = 150

// stem makes the name of a lock into the part of its files' names before the
// ending. Names that differ have stems that differ also where a file system
// ignores case, normalises Unicode, or drops dots and spaces at the end: a stem
// has small letters, digits and -_.%~ only, and each other byte as %xx.
func stem(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if plain(c) || c == '.' && i > 0 { // a dot in front would hide the file
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	s := b.String()
	if device(s) {
		s = fmt.Sprintf("%%%02x%s", s[0], s[1:])
	}
	if len(s) > longest {
		sum := sha256.Sum256([]byte(name))
		s = s[:longest/2] + "~" + hex.EncodeToString(sum[:]) // no other stem has a ~
	}
	return s
}

// isStem reports whether base may be the stem of a name.
func isStem(base string) bool {
	if len(base) == longest/2+1+2*sha256.Size && base[longest/2] == '~' {
		return true
	}
	name, err := url.PathUnescape(base)
	return err == nil && base != "" && stem(name) == base
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// device reports whether Windows takes the name for a device's, as it does
// whatever the ending.
func device(s string) bool {
	s, _, _ = strings.Cut(s, ".")
	switch s {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(s) == 4 && (s[:3] == "com" || s[:3] == "lpt") && '0' <= s[3] && s[3] <= '9'
}
