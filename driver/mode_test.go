package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A request is refused in a mode that the backend does not know, and the error says which it knows. A shared one has a short owner and no
// data: all holders are in one record, and the data belong to all.
func TestModes(t *testing.T) {
	exclusive, both := driver.Modes{}, driver.Modes{Shared: true}
	as := func(mode driver.Mode) func(*driver.Request) { return func(r *driver.Request) { r.Mode = mode } }
	owner := func(length int) func(*driver.Request) {
		return func(r *driver.Request) { r.Owner = strings.Repeat("x", length) }
	}
	for name, c := range map[string]struct {
		modes  driver.Modes
		change func(*driver.Request) // of a shared one
		field  string                // empty if the request is valid
		err    string
	}{
		"exclusive":           {exclusive, as(driver.Exclusive), "", ""},
		"exclusive, of both":  {both, as(driver.Exclusive), "", ""},
		"shared":              {both, as(driver.Shared), "", ""},
		"shared, of one":      {exclusive, as(driver.Shared), "Mode", "holdfast: Mode shared is invalid: must be exclusive on this backend"},
		"another, of one":     {exclusive, as(2), "Mode", "holdfast: Mode mode 2 is invalid: must be exclusive on this backend"},
		"another, of both":    {both, as(255), "Mode", "holdfast: Mode mode 255 is invalid: must be exclusive or shared on this backend"},
		"the longest owner":   {both, owner(driver.MaxSharedOwner), "", ""},
		"a longer owner":      {both, owner(driver.MaxSharedOwner + 1), "Owner", ""},
		"data":                {both, func(r *driver.Request) { r.Data = []byte("x") }, "Data", ""},
		"empty data":          {both, func(r *driver.Request) { r.Data = []byte{} }, "Data", ""},
		"data, and exclusive": {both, func(r *driver.Request) { r.Data, r.Mode = []byte("x"), driver.Exclusive }, "", ""},
	} {
		req := driver.Request{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Second, Mode: driver.Shared}
		c.change(&req)
		err := req.Validate(driver.Info{Modes: c.modes})
		var invalid *driver.InvalidError
		if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &invalid) || !errors.Is(err, driver.ErrInvalid) ||
			invalid.Field != c.field) || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
}
