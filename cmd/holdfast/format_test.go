package main

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
)

func TestQuoteUnsafe(t *testing.T) {
	for in, want := range map[string]string{
		"web-3/411": "web-3/411",
		"grüße":     "grüße",
		"":          `""`,
		"a b":       `"a b"`,
		`"`:         `"\""`,
		"\x1b[2J":   `"\x1b[2J"`,
		"a\nb":      `"a\nb"`,
		"\xff":      `"\xff"`,
		"\u202eabc": `"\u202eabc"`,
	} {
		if got := quoteUnsafe(in); got != want {
			t.Errorf("quoteUnsafe(%q) = %s, want %s", in, got, want)
		}
	}
}

// FuzzQuoteUnsafe checks that text from a backend is shown in printable characters, and that quoted text can be read back.
func FuzzQuoteUnsafe(f *testing.F) {
	for _, s := range []string{"", "billing", "a b", "\x1b[2J", "a\nb", "\u202e", "\"", "\xff", "\ufffd", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
		quoted := quoteUnsafe(s)
		if strings.ContainsFunc(quoted, unprintable) {
			t.Errorf("%q is shown as %q", s, quoted)
		}
		if back, err := strconv.Unquote(quoted); quoted != s && (err != nil || back != s) {
			t.Errorf("%q is shown as %s", s, quoted)
		}
	})
}
