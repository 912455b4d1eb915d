package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// prefix begins every error of the library.
const prefix = "holdfast: "

// Errorf is fmt.Errorf for errors that begin with "holdfast: ": the prefixes of the errors that
// it wraps are left out of the text, so that it stands there once.
func Errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	text := err.Error()
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || !strings.Contains(rest, prefix) {
		return err
	}
	return &prefixed{prefix + unprefixed(rest), err}
}

// inner finds the prefixes of wrapped errors in a text.
var inner = strings.NewReplacer(" "+prefix, " ", "("+prefix, "(")

// unprefixed is a text without the prefixes of the errors in it. Names stand in quotes and keep what looks
// like a prefix.
func unprefixed(text string) string {
	var b strings.Builder
	for text = strings.TrimPrefix(text, prefix); text != ""; {
		before, _, _ := strings.Cut(text, `"`)
		b.WriteString(inner.Replace(before))
		rest := text[len(before):]
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil && rest != "" {
			quoted = rest[:1] // a single quote
		}
		b.WriteString(quoted)
		text = rest[len(quoted):]
	}
	return b.String()
}

// prefixed is an error with another text.
type prefixed struct {
	text string
	err  error
}

func (e *prefixed) Error() string { return e.text }

// Unwrap returns what fmt.Errorf made of the wrapped errors.
func (e *prefixed) Unwrap() error { return e.err }
