package driverutil_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Options are applied in their order; nil ends that with an error.
func TestApplyOptions(t *testing.T) {
	t.Parallel()
	type option func(*[]int)
	add := func(n int) option { return func(c *[]int) { *c = append(*c, n) } }
	var got []int
	if err := driverutil.ApplyOptions(&got, []option{add(1), add(2)}); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("got %v, %v", got, err)
	}
	var invalid *driver.InvalidError
	if err := driverutil.ApplyOptions(&got, []option{add(3), nil, add(4)}); !errors.As(err, &invalid) || !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("with nil: %v, %v", got, err)
	}
}

// The driver's error comes without a Locker, which would otherwise not be nil.
func TestOpened(t *testing.T) {
	t.Parallel()
	var none *memory.Locker
	if l, err := driverutil.Opened(none, driver.ErrClosed); l != nil || !errors.Is(err, driver.ErrClosed) {
		t.Errorf("got %v, %v", l, err)
	}
	if l, err := driverutil.Opened(memory.NewStore().Locker(), nil); l == nil || err != nil {
		t.Errorf("got %v, %v", l, err)
	}
}

// A URL has parameters that the driver knows, and nothing else beside them. The error shows the name of a parameter, and the form.
func TestParseURL(t *testing.T) {
	t.Parallel()
	u, query, err := driverutil.ParseURL("acme://host/a%20b?x=%31&y=", "acme://HOST", "x", "y")
	if err != nil || u.Host != "host" || u.Path != "/a b" || query.Get("x") != "1" || !query.Has("y") {
		t.Errorf("got %v, %v, %v", u, query, err)
	}
	for rawURL, want := range map[string]string{
		"acme://host/%zzsecret":  "URL that cannot be parsed is invalid: must be acme://HOST",
		"acme://host#secret":     "URL with a # is invalid: must be acme://HOST",
		"acme://host#":           "URL with a # is invalid: must be acme://HOST",
		"acme://host?x=%zsecret": "URL with parameters that are not properly encoded is invalid: must be acme://HOST",
		"acme://host?x=1;secret": "URL with parameters that are not properly encoded is invalid: must be acme://HOST",
		"acme://host?z=secret":   `URL parameter "z" is invalid: must be one of x, y`,
	} {
		if _, _, err := driverutil.ParseURL(rawURL, "acme://HOST", "x", "y"); err == nil || err.Error() != "holdfast: "+want {
			t.Errorf("%s: %v, want %s", rawURL, err, want)
		}
	}
}

// A place has what separates locks, and nothing after an @, which may be the end of a password.
func TestPlace(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]string{
		"//locks/a?history=3":                              "//locks/a",
		"//locks?endpoint=http%3A%2F%2Fm%3A1&region=r&a=b": "//locks in r at http://m:1",
		"//locks?endpoint=&region=r":                       "//locks in r",
		"//locks?region=%zz":                               "//locks",
		"//user:pass?word@locks":                           "//user:pass?word@locks",
	} {
		got := driverutil.Place(rest, driverutil.Part{Word: "in", Param: "region"}, driverutil.Part{Word: "at", Param: "endpoint"})
		if got != want {
			t.Errorf("%s: %q, want %q", rest, got, want)
		}
	}
}

// Steps run until one ends the check, the Locker is closed, or the time is over. The last two are errors, whichever step meets
// them.
func TestCheckSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		stop, cancel  int // in which step
		close, closed int // in which step, and before
		ran           int
		want          error
	}{
		{name: "all", ran: 3},
		{name: "one ends it", stop: 2, ran: 2},
		{name: "context ends", cancel: 2, ran: 2, want: context.Canceled},
		{name: "context ends in the last", cancel: 3, ran: 3, want: context.Canceled},
		{name: "context ends in the step that ends it", cancel: 1, stop: 1, ran: 1, want: context.Canceled},
		{name: "closed before", closed: 1, ran: 0, want: driver.ErrClosed},
		{name: "closed meanwhile", close: 1, ran: 1, want: driver.ErrClosed},
		{name: "closed in the last", close: 3, cancel: 3, ran: 3, want: driver.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			closed, ran := c.closed == 1, 0
			step := func(context.Context) bool {
				ran++
				if ran == c.cancel {
					cancel()
				}
				closed = closed || ran == c.close
				return ran != c.stop
			}
			err := driverutil.CheckSteps(ctx, "store", func() bool { return closed }, step, step, step)
			if !errors.Is(err, c.want) || ran != c.ran {
				t.Errorf("%v after %d steps, want %v after %d", err, ran, c.want, c.ran)
			}
			var op *driver.OpError
			if c.want != nil && (!errors.As(err, &op) || op.Op != "check" || op.Backend != "store") {
				t.Errorf("the error is %#v", err)
			}
		})
	}
	if err := driverutil.CheckSteps(t.Context(), "store", nil); err != nil {
		t.Errorf("without steps: %v", err)
	}
}
