package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// placeTypos are the visible characters that a mistake leaves in a name: those of a comment, of a quotation, of an escape.
const placeTypos = "#\"'`\\"

// ValidatePlace checks the name of a database, a collection or a table, wherever it comes from. A store makes it if it is
// missing, so a typo there makes other locks without a word, and two holders of one name. What nobody sees or means to write is
// refused: text that is not UTF-8, control and invisible characters, white space at an end, white space inside other than
// the space, and #, quotes and backslashes. The backend's own rules may forbid more characters. The error is an *[InvalidError]
// that shows only the character: a URL that was written by mistake may have a part of a password there.
func ValidatePlace(field, name, forbidden string) error {
	return validatePlace(field, name, placeTypos+forbidden)
}

// ValidateFolder is [ValidatePlace] for the path of a folder. The characters that can be seen are the file system's concern.
func ValidateFolder(field, path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if err := validatePlace(field, part, ""); err != nil {
			return err
		}
	}
	return nil
}

// ValidateURLEnds refuses white space and what cannot be seen at the ends of a URL, for a driver whose SDK would leave it out or
// take it for a part of the last parameter. The error is an *[InvalidError].
func ValidateURLEnds(rawURL string) error {
	if strings.TrimFunc(rawURL, func(c rune) bool { return c == ' ' || isUnseen(c) }) == rawURL {
		return nil
	}
	return Invalid("URL", "with white space or an invisible character at an end", "without it")
}

func validatePlace(field, name, forbidden string) error {
	for at, c := range name {
		_, size := utf8.DecodeRuneInString(name[at:])
		last, where := at+size == len(name), " in it"
		if last {
			where = " at its end"
		}
		switch {
		case c == utf8.RuneError && size == 1:
			return Invalid(field, fmt.Sprintf("with the byte 0x%02x", name[at])+where, "valid UTF-8")
		case isUnseen(c) || c == ' ' && (at == 0 || last):
			return Invalid(field, fmt.Sprintf("with %+q", c)+where, "without control and invisible characters, and without white space "+
				"other than spaces inside: each name has locks of its own")
		case strings.ContainsRune(forbidden, c):
			return Invalid(field, fmt.Sprintf("with %+q", c)+where, "without any of "+forbidden)
		}
	}
	return nil
}

// isUnseen reports whether a character cannot be seen, or is white space other than the space. The joiners of Persian and
// Indic scripts, and of emoji, are invisible but belong to words.
func isUnseen(c rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf) && c != nonJoiner && c != joiner || unicode.In(c, unicode.Z) && c != ' '
}
