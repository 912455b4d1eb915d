package backends

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// secretPattern matches text that may hold a password, from its beginning: the user information of a URL,
// a parameter named like a password, and what follows the names that the drivers list, such as the key of
// a connection string. Delimiters can be percent-encoded.
var secretPattern = sync.OnceValue(func() *regexp.Regexp {
	patterns := []string{`://[^@]*@`, `\b\w*(password|pwd)=`}
	for _, d := range driver.Drivers() {
		for _, name := range d.Secrets {
			bare, colon := strings.CutSuffix(name, ":")
			after := "(=|%3d)"
			if colon {
				after = "(:|%3a)"
			}
			patterns = append(patterns, `(\b|_|%[0-9a-f]{2})`+regexp.QuoteMeta(bare)+after)
		}
	}
	return regexp.MustCompile("(?is)(" + strings.Join(patterns, "|") + ").*")
})

// Redact cuts off the part of a message that may hold a secret. A message repeats an
// argument, and a user may have put a backend's URL in the wrong place.
func Redact(message string) string {
	return secretPattern().ReplaceAllString(message, "… (the rest may hold a password and is not shown)")
}

// MayHoldSecret reports whether a text may hold a password.
func MayHoldSecret(text string) bool { return secretPattern().MatchString(text) }

// onlyUser matches the user information of a URL that has a user and no password.
var onlyUser = regexp.MustCompile(`(?i)://([^@:/?#%\s]|%([0-24-9a-f][0-9a-f]|3[0-9b-f]))+@`)

// HoldsPassword reports whether a backend's URL may hold a password. The name of a user alone is none.
func HoldsPassword(url string) bool {
	_, known := driver.Describe(url)
	if known {
		url = onlyUser.ReplaceAllString(url, "://")
	}
	return MayHoldSecret(url)
}

// foreignURL matches a URL up to the end of its host. What follows may have an "@", which ends no password.
var foreignURL = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://([^/?#@:\s]+@)?[^/?#@:\s]+(:[0-9]*)?(/|\?|#|$)`)

// nameMayHoldSecret is MayHoldSecret for the name of a lock, which can be the URL of what the lock protects.
func nameMayHoldSecret(name string) bool {
	if _, backend := driver.Describe(name); !backend {
		name = foreignURL.ReplaceAllString(name, "")
	}
	return MayHoldSecret(name)
}

var errSecretInName = errors.New("the lock's name looks like a URL with a password, or like a connection string: the backend is set with " +
	"--backend or in HOLDFAST_BACKEND")

// CheckName refuses a name that seems to hold a secret: names are shown and stored. It refuses bytes that are not UTF-8
// as the library does, also for commands that retry.
func CheckName(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("the lock's name %.100q is invalid: must be valid UTF-8", name)
	}
	if nameMayHoldSecret(name) {
		return errSecretInName
	}
	return nil
}

// IsCredential reports whether an environment variable holds a credential of the backend with this
// URL. The command that runs under the lock does not need it.
func IsCredential(key, value, backend string) bool {
	if strings.EqualFold(key, Variable) { // on Windows the case of a variable's name does not matter
		return HoldsPassword(value)
	}
	own, _ := driver.Describe(backend)
	for _, d := range driver.Drivers() {
		for _, c := range d.Credentials {
			mine := func(variable string) bool { return strings.EqualFold(key, variable) }
			if slices.ContainsFunc(c.Variables, mine) && (c.Reads == nil || d.Name == own.Name && c.Reads(backend)) {
				return true
			}
		}
	}
	return false
}
