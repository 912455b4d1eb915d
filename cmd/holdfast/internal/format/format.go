// Package format formats values for people.
package format

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// Text returns text from a backend as it is if it is safe to show, and quoted
// otherwise: text in a lock's record must not control the terminal of its reader.
func Text(s string) string {
	for _, r := range s {
		if r == unicode.ReplacementChar || r == '"' || r == ' ' || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// Duration formats a duration with the precision that a person needs.
func Duration(d time.Duration) string {
	switch {
	case d < 10*time.Second && d > -10*time.Second:
		d = d.Round(10 * time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return driver.FormatDuration(d)
}

// ShortDuration formats the difference of clocks.
func ShortDuration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return Duration(d)
	}
}

// ShellWord returns a word of a POSIX shell's command line. A name that cannot be shown is NAME.
func ShellWord(s string) string {
	plain := true
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return "NAME"
		}
		plain = plain && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// NameAndFlags returns the end of a command line: the name of a lock and flags. A name that begins with a dash comes after "--".
func NameAndFlags(name, flags string) string {
	word := ShellWord(name)
	switch {
	case strings.HasPrefix(name, "-"):
		return strings.TrimLeft(flags+" -- ", " ") + word
	case flags == "":
		return word
	}
	return word + " " + flags
}

// NilIfZero returns nil for the zero value, which often means unknown.
func NilIfZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// Width is the width of a terminal that shows whole lines.
const Width = 80

// Wrap writes words in lines that are not wider than the terminal, if no word is.
func Wrap(out *strings.Builder, text, first, indent string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > Width-1 {
			out.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	out.WriteString(line + "\n")
}
