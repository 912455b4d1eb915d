package azblob

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// The blob of a lock has the lock's name, with every byte other than an ASCII letter, a digit,
// "-" and "_" written as "=" and two upper-case hex digits. So every name has its own blob,
// although the service treats "a//b", "a/./b" and "a." as other names and refuses control
// characters, and the blobs of names with a common prefix begin with the escaped prefix.

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func escape(name string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(name) {
		if isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// unescape reverses escape. ok is false if escape cannot return blobName.
func unescape(blobName string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(blobName); i++ {
		if blobName[i] != '=' {
			b.WriteByte(blobName[i])
			continue
		}
		if i+3 > len(blobName) {
			return "", false
		}
		c, err := hex.DecodeString(blobName[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), b.Len() > 0 && escape(b.String()) == blobName
}

// canonicalID returns a UUID in lower case, since the service ignores the case of lease IDs.
// Azure accepts only UUIDs as lease IDs.
func canonicalID(id string) (string, bool) {
	if len(id) != 36 {
		return "", false
	}
	for i, c := range []byte(id) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hexDigit := '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
		if dash != (c == '-') || !dash && !hexDigit {
			return "", false
		}
	}
	return strings.ToLower(id), true
}

const maxPrefix = 1024 - 3*256 - 1

var prefixRule = fmt.Sprintf("at most %d letters, digits and any of -_./ without an empty part or one that ends with a dot", maxPrefix-1)

// validPrefix accepts only parts that every server and tool leaves unchanged.
func validPrefix(prefix string) bool {
	if prefix == "" {
		return true
	}
	if len(prefix) >= maxPrefix {
		return false
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || strings.HasSuffix(part, ".") {
			return false
		}
		for _, c := range []byte(part) {
			if !isPlain(c) && c != '.' {
				return false
			}
		}
	}
	return true
}
