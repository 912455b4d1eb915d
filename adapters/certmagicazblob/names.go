package certmagicazblob

import (
	"encoding/hex"
	"strings"
)

// The blob of a key has the key's name. Bytes other than ASCII letters, digits, slashes and any
// of -_.@ are written as "=" and two upper-case hex digits, and so is a dot at the end of a part:
// the service drops it.

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.@/", c) >= 0
}

// blobName returns the name of a clean key's blob, without the folder.
func blobName(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i, c := range []byte(key) {
		last := i+1 == len(key) || key[i+1] == '/'
		if isPlain(c) && (c != '.' || !last) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// keyOf reverses blobName. ok is false for a blob that is no key's.
func keyOf(name string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '=' {
			b.WriteByte(name[i])
			continue
		}
		if i+3 > len(name) {
			return "", false
		}
		c, err := hex.DecodeString(name[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), b.Len() > 0 && blobName(b.String()) == name
}
