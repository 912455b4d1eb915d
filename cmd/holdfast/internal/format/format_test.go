package format

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
)

func TestText(t *testing.T) {
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
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %s, want %s", in, got, want)
		}
	}
}

// FuzzText checks that text from a backend is shown in printable characters, and that quoted text can be read back.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "billing", "a b", "\x1b[2J", "a\nb", "\u202e", "\"", "\xff", "\ufffd", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
		quoted := Text(s)
		if strings.ContainsFunc(quoted, unprintable) {
			t.Errorf("%q is shown as %q", s, quoted)
		}
		if back, err := strconv.Unquote(quoted); quoted != s && (err != nil || back != s) {
			t.Errorf("%q is shown as %s", s, quoted)
		}
	})
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"a/b-1": "a/b-1", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "\x1b": "NAME",
		"\xff": "NAME"} {
		if got := ShellWord(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

func TestNameAndFlags(t *testing.T) {
	for _, c := range [][3]string{{"job", "--now", "job --now"}, {"job", "", "job"}, {"-dash", "--now", "--now -- -dash"},
		{"-dash", "", "-- -dash"}} {
		if got := NameAndFlags(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: got %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
