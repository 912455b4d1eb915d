package lockrecord

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// maxWhole is the length above which a key is cut: after keptBytes, with a hash of the name behind them. So a
// key has at most 150 bytes.
const (
	maxWhole  = 150
	keptBytes = maxWhole / 2
	hashBytes = 2 * sha256.Size
)

// Key returns the key under which a driver keeps the lock of a name. Different names have different keys,
// also in a store that ignores case or normalizes Unicode. To that end a key has only small letters, digits
// and -_.%~, and each other byte of the name is written as %xx. A key has at most 150 bytes, does not begin
// with a dot, and has a ~ only at its 76th byte, if the name is long.
func Key(name string) string { return cutKey(escape(name), name) }

// FileKey is Key for the names of files, also on Windows, where some names are those of devices.
func FileKey(name string) string {
	s := escape(name)
	if isDevice(s) {
		s = escapeByte(nil, s[0]) + s[1:]
	}
	return cutKey(s, name)
}

// KeyPrefix is what the key of each name with the prefix begins with.
func KeyPrefix(prefix string) string {
	s := escape(prefix)
	return s[:min(len(s), keptBytes)]
}

// NameOfKey returns the name of a key. It reports false if the key does not contain the name: it is that of a
// long name, or no key at all.
func NameOfKey(key string) (name string, ok bool) { return nameOf(key, Key) }

// NameOfFileKey is NameOfKey for a [FileKey].
func NameOfFileKey(key string) (name string, ok bool) { return nameOf(key, FileKey) }

func nameOf(key string, keyOf func(string) string) (string, bool) {
	name, err := url.PathUnescape(key)
	return name, err == nil && key != "" && keyOf(name) == key
}

// IsLong reports whether the key is that of a long name, which it does not contain.
func IsLong(key string) bool { return len(key) == keptBytes+1+hashBytes && key[keptBytes] == '~' }

// MayHavePrefix reports whether a [Key] or a [FileKey] can be that of a name with the prefix. Only then
// the record needs to be read.
func MayHavePrefix(key, prefix string) bool {
	name, err := url.PathUnescape(key)
	return err != nil || strings.Contains(key, "~") || strings.HasPrefix(name, prefix)
}

func escape(name string) string {
	b := make([]byte, 0, len(name)+len(name)/4)
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 { // a leading dot would hide a file
			b = append(b, c)
		} else {
			b = append(b, escapeByte(nil, c)...)
		}
	}
	return string(b)
}

func escapeByte(b []byte, c byte) string {
	const digits = "0123456789abcdef"
	return string(append(b, '%', digits[c>>4], digits[c&15]))
}

func cutKey(s, name string) string {
	if len(s) <= maxWhole {
		return s
	}
	sum := sha256.Sum256([]byte(name))
	return s[:keptBytes] + "~" + hex.EncodeToString(sum[:]) // no other key has a ~
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
