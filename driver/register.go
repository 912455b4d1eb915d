package driver

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener makes a Locker from a URL. It must refuse parameters that it does not know, with
// an *[InvalidError] that lists the known ones; [CheckParams] does so. It must not put the
// user information of the URL into an error.
type Opener func(ctx context.Context, rawURL string) (Locker, error)

// registry has the registered drivers. It is the only package-level state that changes.
var registry struct {
	sync.RWMutex
	drivers []Description
}

// Register makes a driver available to [Open], and to all that reads [Drivers]. A driver calls it in an init
// function. Register panics if the description is not valid or one of the schemes is taken, since both are
// programming errors. The text names the field, and what is allowed.
func Register(d Description) {
	err := d.check()
	registry.Lock()
	defer registry.Unlock()
	for _, other := range registry.drivers {
		for _, scheme := range d.Schemes {
			if err == nil && slices.Contains(other.Schemes, scheme) {
				err = Invalid("Schemes", Quote(scheme), "of one driver alone, and "+Quote(other.Name)+" has it")
			}
		}
	}
	if err != nil {
		panic(prefix + "Register of the driver " + Quote(d.Name) + ": " + ErrorText(err))
	}
	registry.drivers = append(registry.drivers, d)
}

// Schemes returns the registered URL schemes, sorted.
func Schemes() []string {
	var all []string
	for _, d := range Drivers() {
		all = append(all, d.Schemes...)
	}
	slices.Sort(all)
	return all
}

// Open makes the Locker for a URL, such as "file:/var/lib/locks" or
// "mongodb://db1,db2/app?replicaSet=rs0". The program must import the URL's driver. Most
// programs call holdfast.Open instead, which returns a client on top of the Locker.
func Open(ctx context.Context, rawURL string) (Locker, error) {
	scheme, _, found := strings.Cut(rawURL, ":")
	if !found || !isScheme(scheme) { // the text may be a secret, so the error does not show it
		if err := ValidateURLEnds(rawURL); err != nil {
			return nil, err
		}
		return nil, Invalid("URL", "without a scheme", "one of "+schemeRule()+", followed by what that backend needs")
	}
	d, known := Describe(rawURL)
	if !known {
		rule := "one of " + schemeRule() + "; is the driver imported?"
		if path := importPaths[strings.ToLower(scheme)]; path != "" {
			rule = fmt.Sprintf("that of an imported driver: import _ %q", path)
		} else if meant := SimilarScheme(scheme); meant != "" {
			rule += " Did you mean " + meant + "?"
		}
		return nil, Invalid("URL", "with scheme "+Quote(scheme), rule)
	}
	return d.Open(ctx, rawURL)
}

// schemeRule lists the registered schemes.
func schemeRule() string {
	all := Schemes()
	if len(all) == 0 {
		return fmt.Sprintf("those of imported drivers (none is imported; such as import _ %q)", importPaths["file"])
	}
	return strings.Join(all, ":, ") + ":"
}

// SimilarScheme returns how the URL of a known driver begins that was probably meant by one with an unknown scheme, or "".
func SimilarScheme(scheme string) string {
	scheme = strings.ToLower(scheme)
	if scheme == "http" || scheme == "https" {
		return "azblob://ACCOUNT/CONTAINER"
	}
	const least = 3 // letters that say something
	for _, known := range slices.Sorted(maps.Keys(importPaths)) {
		if len(scheme) >= least && (strings.Contains(known, scheme) || strings.Contains(scheme, known)) {
			return known + ":"
		}
	}
	return ""
}

// CheckParams checks the parameters of a URL. If one of them is not among known, the
// result is an *[InvalidError] that names it and lists the known ones. A text that does not
// look like a name is not shown, since it may be a secret in the wrong place.
func CheckParams(query url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			rule := "absent: this backend has no URL parameters"
			if len(known) > 0 {
				rule = "one of " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
			}
			return Invalid("URL parameter", QuoteName(name), rule)
		}
	}
	return nil
}

// isScheme reports whether s can be the scheme of a URL (RFC 3986, section 3.1).
func isScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || (('0' > c || c > '9') && c != '+' && c != '-' && c != '.')) {
			return false
		}
	}
	return s != ""
}
