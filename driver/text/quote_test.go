package text_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-go/holdfast/driver/text"
)

// FuzzQuote checks that a quoted text is short, safe to print, and begins as the text does.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "billing", "a\x00\x1b[2J\n", "\xff\xfe", strings.Repeat("é", 40), strings.Repeat("\x80", 70)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := text.Quote(s)
		quoted, rest, shortened := strings.Cut(got, "… (")
		if strings.HasSuffix(got, `"`) { // the text itself may contain the mark of shortening
			quoted, rest, shortened = got, "", false
		}
		back, err := strconv.Unquote(quoted)
		if err != nil || !strings.HasPrefix(s, back) || !shortened && back != s {
			t.Errorf("%q is shown as %s, which reads as %q, error %v", s, got, back, err)
		}
		if shortened != (len(s) > 60) || shortened && rest != strconv.Itoa(len(s))+" bytes)" {
			t.Errorf("%d bytes are shown as %s", len(s), got)
		}
		if len(got) > 300 || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %s", s, got)
		}
	})
}
