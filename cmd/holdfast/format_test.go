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

// FuzzTexts checks that text from a backend is shown on one line of printable characters, and
// that quoted text can be read back.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"", "billing", "a b", "\x1b[2J", "holdfast: a\nholdfast: b", "\u202e", "\"", "\xff", "\ufffd", "'"} {
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
		if line := oneLine(s); strings.ContainsFunc(line, unprintable) || oneLine(line) != strings.TrimSpace(line) {
			t.Errorf("%q is shown as %q", s, line)
		}
		var b strings.Builder
		newLogger(&b, false, false).errorf("%s", s)
		if line := b.String(); !strings.HasPrefix(line, "holdfast: ") || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("%q is logged as %q", s, line)
		}
	})
}
