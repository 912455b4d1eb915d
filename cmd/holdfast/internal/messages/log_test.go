package messages

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

func TestLibraryPrefixIsNotRepeated(t *testing.T) {
	for in, want := range map[string]string{
		`holdfast: connect to mongodb: EOF`:                                 `connect to mongodb: EOF`,
		`cannot open: holdfast: connect to mongodb: EOF`:                    `cannot open: connect to mongodb: EOF`,
		`waiting ended; holdfast: acquire "job" on file: EOF`:               `waiting ended; acquire "job" on file: EOF`,
		`lost "job" (holdfast: lease lost)`:                                 `lost "job" (lease lost)`,
		`waiting for "holdfast: x": held by "a: b"`:                         `waiting for "holdfast: x": held by "a: b"`,
		`acquired "job" with holdfast, which is not a prefix: 50% holdfast`: `acquired "job" with holdfast, which is not a prefix: 50% holdfast`,
	} {
		var out bytes.Buffer
		NewLog(&out, false, false).Errorf("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%s\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}

// Text from a backend cannot control the terminal or add a line.
func TestMessagesAreOneSafeLine(t *testing.T) {
	for in, want := range map[string]string{
		"a \x1b[2J\x1b]0;title\x07 b":         `a \x1b[2J\x1b]0;title\a b`,
		"one\ntwo\r\n":                        `one; two`,
		"first\nholdfast: acquired \"job\"\n": `first; acquired "job"`,
		"grüße, \u202egnol":                   `grüße, \u202egnol`,
		"\u009b31m":                           `\u009b31m`,
		"no utf-8: \xff.":                     "no utf-8: \ufffd.",
		`"quoted" 'text' \path`:               `"quoted" 'text' \path`,
	} {
		var out bytes.Buffer
		NewLog(&out, false, false).Errorf("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%q\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}

// FuzzLog checks that any text becomes one line of printable characters.
func FuzzLog(f *testing.F) {
	for _, s := range []string{"", "billing", "a b", "\x1b[2J", "holdfast: a\nholdfast: b", "\u202e", "\"", "\xff", "\ufffd", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
		if line := oneLine(s); strings.ContainsFunc(line, unprintable) || oneLine(line) != strings.TrimSpace(line) {
			t.Errorf("%q is shown as %q", s, line)
		}
		var b strings.Builder
		NewLog(&b, false, false).Errorf("%s", s)
		if line := b.String(); !strings.HasPrefix(line, "holdfast: ") || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("%q is logged as %q", s, line)
		}
	})
}
