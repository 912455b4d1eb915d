package driver

import (
	"fmt"
	"strings"
)

// prefix begins the text of every error of the library. Only [Errorf] and the types of this package write it, each in
// front of a text that has none.
const prefix = "holdfast: "

// Errorf is fmt.Errorf for errors of the library. It begins the text with "holdfast: ", so the format does not. The
// errors among the arguments stand in the text as [ErrorText] returns them, so that the prefix stands there once.
func Errorf(format string, args ...any) error {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = &part{err}
		}
	}
	return &prefixed{fmt.Errorf(format, args...)}
}

// ErrorText is the text of err without the "holdfast: " with which the text of the library's errors begins, for
// messages that show the error as a part.
func ErrorText(err error) string {
	text := err.Error()
	switch err := err.(type) { //nolint:errorlint // the text of this very error, not of one that it wraps
	case interface{ plain() string }:
		return err.plain()
	case interface{ Unwrap() error }: // it may only mark another, and have its text
		if inner := err.Unwrap(); inner != nil && inner.Error() == text {
			return ErrorText(inner)
		}
	case interface{ Unwrap() []error }: // of errors.Join, too
		var whole, texts []string
		for _, inner := range err.Unwrap() {
			whole, texts = append(whole, inner.Error()), append(texts, ErrorText(inner))
		}
		if strings.Join(whole, "\n") == text {
			return strings.Join(texts, "\n")
		}
	}
	return text
}

// prefixed is an error made by [Errorf]. Like the other errors of the library, it has a method plain, which returns its text
// without the prefix.
type prefixed struct{ err error }

func (e *prefixed) Error() string { return prefix + e.plain() }
func (e *prefixed) plain() string { return e.err.Error() }

// Unwrap returns what fmt.Errorf made of the wrapped errors.
func (e *prefixed) Unwrap() error { return e.err }

// part is an error as it stands in the text of one that wraps it.
type part struct{ err error }

func (p *part) Error() string { return ErrorText(p.err) }
func (p *part) Unwrap() error { return p.err }
