package backends

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// SecretValues returns the secrets themselves: the password of a backend's URL, the values of its parameters that hold secrets, and the
// credentials in the environment. They are as they are written and as they are sent. An invalid URL does no harm.
func SecretValues(backend string) []string {
	all := ofURL(backend, secretNames())
	about, _ := driver.Describe(backend)
	for _, c := range about.Credentials {
		for _, variable := range c.Variables {
			value := os.Getenv(variable)
			all = append(append(all, value), assigned(strings.FieldsFunc(value, isDelimiter), secretNames())...)
		}
	}
	all = slices.DeleteFunc(all, func(secret string) bool { return secret == "" })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // one that is a part of another comes after it
	return slices.Compact(all)
}

func isDelimiter(r rune) bool { return strings.ContainsRune(";&?", r) } // of connection strings and SAS

// secretNames are the names that a secret follows, in lower case.
func secretNames() []string {
	names := []string{"password", "pwd"}
	for _, d := range driver.Drivers() {
		for _, name := range d.Secrets {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// ofURL returns the secrets of a URL, which no other program may have checked.
func ofURL(text string, names []string) (all []string) {
	base, query, _ := strings.Cut(text, "?")
	_, base, _ = strings.Cut(base, "://")
	if at := strings.LastIndexByte(base, '@'); at >= 0 {
		_, password, _ := strings.Cut(base[:at], ":")
		all = spellings(password)
	}
	return append(all, assigned(strings.Split(query, "&"), names)...)
}

// assigned returns the secrets of "name=value" pairs, also those that a value has as "name:secret".
func assigned(pairs, names []string) (all []string) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if lower := strings.ToLower(name); slices.Contains(names, lower) || strings.HasSuffix(lower, "password") {
			all = append(all, spellings(value)...)
		}
		plain := unescaped(value)
		if strings.Contains(plain, "://") { // a URL as a parameter of another
			all = append(all, ofURL(plain, names)...)
		}
		for property := range strings.SplitSeq(plain, ",") {
			name, secret, found := strings.Cut(property, ":")
			if found && slices.Contains(names, strings.ToLower(name)+":") {
				all = append(all, spellings(secret)...)
			}
		}
	}
	return all
}

// spellings returns how a part of a URL can be written in a message.
func spellings(part string) []string {
	plain := unescaped(part)
	quoted := strconv.Quote(plain)
	return []string{part, plain, url.PathEscape(plain), url.QueryEscape(plain), quoted[1 : len(quoted)-1]}
}

func unescaped(part string) string {
	if plain, err := url.PathUnescape(part); err == nil {
		return plain
	}
	return part
}

// LongSecret is the length from which a secret is no part of a harmless word.
const LongSecret = 6

// HideSecrets takes secrets out of a text, in the order of [SecretValues]. A short one counts only as a word of its own.
func HideSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) < LongSecret {
			text = AsWord(secret).ReplaceAllLiteralString(text, "…")
		} else {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// AsWord matches a text that is no part of a longer word.
func AsWord(text string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(text)
	if wordAtBegin.MatchString(text) {
		pattern = `\b` + pattern
	}
	if wordAtEnd.MatchString(text) {
		pattern += `\b`
	}
	return regexp.MustCompile(pattern)
}

var wordAtBegin, wordAtEnd = regexp.MustCompile(`^\w`), regexp.MustCompile(`\w$`)

// WithoutSecrets returns an error whose text has no secrets.
func WithoutSecrets(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	return &hiddenError{error: err, text: HideSecrets(err.Error(), secrets)}
}

type hiddenError struct {
	error
	text string
}

func (e *hiddenError) Error() string { return e.text }

func (e *hiddenError) Unwrap() error { return e.error }
