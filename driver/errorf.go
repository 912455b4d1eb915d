package driver

import (
	"fmt"
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

// unprefixed is a text without the prefixes in it.
func unprefixed(text string) string { return strings.ReplaceAll(text, prefix, "") }

// prefixed is an error with another text.
type prefixed struct {
	text string
	err  error
}

func (e *prefixed) Error() string { return e.text }

// Unwrap returns what fmt.Errorf made of the wrapped errors.
func (e *prefixed) Unwrap() error { return e.err }
