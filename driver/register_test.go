package driver_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

var errOpened = errors.New("the driver was called")

// described returns a valid description of a driver for one scheme, which is not registered.
func described(scheme string) driver.Description {
	return driver.Description{
		Name: "store of " + scheme, Schemes: []string{scheme}, Examples: []driver.Example{{URL: scheme + "://HOST", Help: "a store"}},
		Open:         func(context.Context, string) (driver.Locker, error) { return nil, errOpened },
		OpenForCheck: func(context.Context, string) (driver.Locker, error) { return nil, errOpenedForCheck },
	}
}

func init() { driver.Register(described("registered")) }

// FuzzOpen checks that a URL reaches its driver if its scheme is registered, in any case, and is
// refused otherwise. The error shows nothing of what comes after the scheme.
func FuzzOpen(f *testing.F) {
	f.Add("registered", "//host/path")
	f.Add("REGISTERED", "")
	f.Add("other", "//user:password@host")
	f.Add("", "x")
	f.Add("a b", "c")
	f.Add("DefaultEndpointsProtocol=https;AccountName=a", "")
	f.Fuzz(func(t *testing.T, scheme, rest string) {
		const secret = "s3cr3t-0f-7h3-u53r"
		if strings.Contains(scheme, secret) {
			return
		}
		_, err := driver.Open(t.Context(), scheme+":"+rest+secret)
		if registered := strings.EqualFold(scheme, "registered"); registered && errors.Is(err, errOpened) {
			return
		}
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "URL" {
			t.Errorf("%q: error %v", scheme, err)
		} else if strings.Contains(err.Error(), secret) || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: error %q", scheme, err)
		}
	})
}

// A URL that was written by mistake may have a key in the place of a parameter's name.
func TestUnknownParamIsShownOnlyIfItIsAName(t *testing.T) {
	for name, want := range map[string]string{
		"retntion":     `holdfast: URL parameter "retntion" is invalid: must be one of retention`,
		"client-id.x_": `holdfast: URL parameter "client-id.x_" is invalid: must be one of retention`,
		"a2V5LW9mLWFuLWFjY291bnQta2V5LW9mLWFuLWFjY291bnQ": "holdfast: URL parameter not shown is invalid: must be one of retention",
		"c2VjcmV0+/":    "holdfast: URL parameter not shown is invalid: must be one of retention",
		"p%4055@host/x": "holdfast: URL parameter not shown is invalid: must be one of retention",
		"":              "holdfast: URL parameter not shown is invalid: must be one of retention",
	} {
		if err := driver.CheckParams(url.Values{name: {"x"}}, "retention"); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
}

// FuzzCheckParams checks that exactly the known parameters pass, and that the error is safe.
func FuzzCheckParams(f *testing.F) {
	f.Add("retention=1h&endpoint=x")
	f.Add("retention=1h&Retention=2h")
	f.Add("=&&;%41=1")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		known := []string{"retention", "endpoint"}
		unknown := false
		for name := range values {
			unknown = unknown || !slices.Contains(known, name)
		}
		err = driver.CheckParams(values, known...)
		if unknown != errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: error %v", query, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "holdfast: URL parameter ") || len(err.Error()) > 200) {
			t.Errorf("%q: error %v", query, err)
		}
	})
}
