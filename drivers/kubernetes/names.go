package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// The name of a Lease is made of small letters, digits, "-" and ".", and each part between dots begins and ends with a letter or
// digit. A key of package cas has such characters mostly, so the Lease of a lock has the lock's name, which is that of an elector's
// Lease, too. All else is written as "--" and two hexadecimal digits, so a "-" before another is written in that way as well. A part
// that would begin with an escape has an "x" before it.

const (
	maxLeaseName = 253
	escape       = "--"
	// filler stands before an escape that begins a part. A part that begins with an x and an escape has its x escaped, too.
	filler = "x"
	// hashed stands before the hash that ends a name which was cut. cutMark stands for the "~" of a key that was cut, and stray for
	// the "%" of an escape that was cut with it.
	hashed, cutMark, stray = escape + "zy", escape + "zz", escape + "zx"
	hashBytes              = 16
	// probeLease is the name for [cas.ProbeKey]. No other key is written in this way.
	probeLease = "holdfast" + escape + "probe"
)

// leaseName returns the name of the Lease for a key. Different keys have different names.
func leaseName(prefix, key string) string {
	name := escapeKey(key)
	if len(prefix)+len(name) > maxLeaseName {
		sum := sha256.Sum256([]byte(key))
		end := hashed + hex.EncodeToString(sum[:hashBytes])
		name = strings.TrimRight(name[:maxLeaseName-len(prefix)-len(end)], "-.") + end
	}
	return prefix + name
}

func escapeKey(key string) string {
	if key == cas.ProbeKey {
		return probeLease
	}
	var b strings.Builder
	begins := true // a part
	for i := 0; i < len(key); i++ {
		last := i+1 == len(key)
		var code string
		switch c := key[i]; {
		case c == '%' && i+2 < len(key) && isHex(key[i+1]) && isHex(key[i+2]):
			code = escape + key[i+1:i+3]
			i += 2
		case c == '%':
			code = stray
		case c == '~':
			code = cutMark
		case isAlnum(c) && (c != filler[0] || !begins || last || isLiteral(key, i+1)),
			c == '-' && !begins && !last && isAlnum(key[i+1]),
			c == '.' && !begins && !last && key[i+1] != '.':
			begins = c == '.'
			b.WriteByte(c)
			continue
		default:
			code = escape + hex.EncodeToString([]byte{key[i]})
		}
		if begins {
			b.WriteString(filler)
		}
		b.WriteString(code)
		begins = false
	}
	return b.String()
}

// isLiteral reports whether the byte of a key that follows the first one of a part stands for itself.
func isLiteral(key string, i int) bool {
	last := i+1 == len(key)
	return isAlnum(key[i]) || key[i] == '-' && !last && isAlnum(key[i+1]) || key[i] == '.' && !last && key[i+1] != '.'
}

// keyOf returns the key of a Lease with a name. It reports false for the name of a Lease that was cut or is no lock's.
func keyOf(prefix, lease string) (key string, ok bool) {
	name, ok := strings.CutPrefix(lease, prefix)
	if !ok {
		return "", false
	}
	if name == probeLease {
		return cas.ProbeKey, true
	}
	var b strings.Builder
	for at := 0; at < len(name); {
		rest := name[at:]
		if (at == 0 || name[at-1] == '.') && strings.HasPrefix(rest, filler+escape) {
			at++
			continue
		}
		switch {
		case strings.HasPrefix(rest, cutMark):
			b.WriteByte('~')
			at += len(cutMark)
		case strings.HasPrefix(rest, stray):
			b.WriteByte('%')
			at += len(stray)
		case strings.HasPrefix(rest, escape) && len(rest) >= 4 && isHex(rest[2]) && isHex(rest[3]):
			code, _ := hex.DecodeString(rest[2:4])
			if c := code[0]; (c == '.' && b.Len() > 0) || c == '-' || c == '_' || isAlnum(c) {
				b.WriteByte(c)
			} else {
				b.WriteString("%" + rest[2:4])
			}
			at += 4
		default:
			b.WriteByte(rest[0])
			at++
		}
	}
	key = b.String()
	return key, key != "" && leaseName(prefix, key) == lease
}

func isAlnum(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// isLabel reports whether s is a label of DNS (RFC 1123) of at most so many bytes, and isSubdomain whether it is labels with dots
// between them.
func isLabel(s string, most int) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && (s[i] != '-' || i == 0 || i+1 == len(s)) {
			return false
		}
	}
	return s != "" && len(s) <= most
}

func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label, maxLeaseName) {
			return false
		}
	}
	return len(s) <= maxLeaseName
}
