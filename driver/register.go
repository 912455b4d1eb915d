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

// drivers has the openers by URL scheme. It is the only package-level state.
var drivers = struct {
	sync.RWMutex
	byScheme map[string]Opener
	forCheck map[string]Opener
}{byScheme: map[string]Opener{}, forCheck: map[string]Opener{}}

// Register makes a driver available to [Open] under a URL scheme. A driver calls it in an
// init function. Register panics if the scheme is taken or the opener is nil, since both
// are programming errors.
func Register(scheme string, open Opener) { register(drivers.byScheme, "Register", scheme, open) }

func register(openers map[string]Opener, function, scheme string, open Opener) {
	drivers.Lock()
	defer drivers.Unlock()
	if open == nil {
		panic("holdfast: " + function + " of a nil opener for " + scheme)
	}
	if _, taken := openers[scheme]; taken {
		panic("holdfast: " + function + " called twice for " + scheme)
	}
	openers[scheme] = open
}

// Schemes returns the registered URL schemes, sorted.
func Schemes() []string {
	drivers.RLock()
	defer drivers.RUnlock()
	return slices.Sorted(maps.Keys(drivers.byScheme))
}

// Open makes the Locker for a URL, such as "file:/var/lib/locks" or
// "mongodb://db1,db2/app?replicaSet=rs0". The program must import the URL's driver. Most
// programs call holdfast.Open instead, which returns a client on top of the Locker.
func Open(ctx context.Context, rawURL string) (Locker, error) {
	scheme, _, found := strings.Cut(rawURL, ":")
	if !found || !isScheme(scheme) { // the text may be a secret, so the error does not show it
		return nil, Invalid("URL", "without a scheme", "one of "+strings.Join(Schemes(), ":, ")+":, followed by what that backend needs")
	}
	drivers.RLock()
	open := drivers.byScheme[strings.ToLower(scheme)]
	drivers.RUnlock()
	if open == nil {
		return nil, Invalid("URL", "with scheme "+Quote(scheme), fmt.Sprintf("of a registered scheme %q; is the driver imported?", Schemes()))
	}
	return open(ctx, rawURL)
}

// CheckParams checks the parameters of a URL. If one of them is not among known, the
// result is an *[InvalidError] that names it and lists the known ones. A text that does not
// look like a name is not shown, since it may be a secret in the wrong place.
func CheckParams(query url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			slices.Sort(known)
			rule := "absent: this backend has no URL parameters"
			if len(known) > 0 {
				rule = "one of " + strings.Join(known, ", ")
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
