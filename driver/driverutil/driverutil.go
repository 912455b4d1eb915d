// Package driverutil has what drivers would repeat and the contract does not need.
package driverutil

import (
	"context"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// ApplyOptions applies options to a driver's configuration, in their order. Nil among them is a [*driver.InvalidError].
func ApplyOptions[C any, O ~func(*C)](c *C, opts []O) error {
	for _, apply := range opts {
		if apply == nil {
			return driver.Invalid("option", "nil", "an Option")
		}
		apply(c)
	}
	return nil
}

// Opened returns what a driver's function has opened, as the interface: a nil *Locker in it would not be nil.
func Opened[L driver.Locker](l L, err error) (driver.Locker, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ParseURL returns a URL and its parameters, of which all are among params. It refuses a "#" and what follows it. The error is a
// *[driver.InvalidError]; form says in it what a URL of the driver looks like. It shows nothing of the URL but the name of a
// parameter, since a URL that was written by mistake may have a secret anywhere.
func ParseURL(rawURL, form string, params ...string) (*url.URL, url.Values, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, driver.Invalid("URL", "that cannot be parsed", form)
	}
	if strings.Contains(rawURL, "#") {
		return nil, nil, driver.Invalid("URL", "with a #", form)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, driver.Invalid("URL", "with parameters that are not properly encoded", form)
	}
	return u, query, driver.CheckParams(query, params...)
}

// Part is a parameter of a URL that belongs to the place of locks, and the word before it in a text.
type Part struct{ Word, Param string }

// Place is a [driver.Description].Place: rest without its parameters, except parts.
func Place(rest string, parts ...Part) string {
	if strings.Contains(rest, "@") {
		return rest // no valid URL has one; the text before it may be a password with a "?"
	}
	place, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return place
	}
	for _, p := range parts {
		if v := values.Get(p.Param); v != "" {
			place += " " + p.Word + " " + v
		}
	}
	return place
}

// CheckSteps does what a [driver.Checker] examines, one step after another, until one returns false. It returns an error if the
// Locker is closed or ctx ends: what the steps have reported then says nothing of the backend. A driver whose steps notice by
// themselves that the Locker is closed passes nil for closed.
func CheckSteps(ctx context.Context, backend string, closed func() bool, steps ...func(context.Context) (goOn bool)) error {
	end := func() error {
		switch {
		case closed != nil && closed():
			return &driver.OpError{Op: "check", Backend: backend, Err: driver.ErrClosed}
		case ctx.Err() != nil:
			return &driver.OpError{Op: "check", Backend: backend, Err: ctx.Err()}
		}
		return nil
	}
	for _, step := range steps {
		if err := end(); err != nil {
			return err
		}
		if !step(ctx) {
			break
		}
	}
	return end()
}
