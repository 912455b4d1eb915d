package driver_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A request is refused in a mode that the backend does not know, and the error says which it knows.
func TestModes(t *testing.T) {
	exclusive, both := driver.Modes{}, driver.Modes{Shared: true}
	for _, c := range []struct {
		modes driver.Modes
		mode  driver.Mode
		err   string // empty if the mode is known
	}{
		{exclusive, driver.Exclusive, ""},
		{both, driver.Exclusive, ""},
		{both, driver.Shared, ""},
		{exclusive, driver.Shared, "holdfast: Mode shared is invalid: must be exclusive on this backend"},
		{exclusive, driver.Mode(2), "holdfast: Mode mode 2 is invalid: must be exclusive on this backend"},
		{both, driver.Mode(255), "holdfast: Mode mode 255 is invalid: must be exclusive or shared on this backend"},
	} {
		req := driver.Request{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Second, Mode: c.mode}
		err := req.Validate(driver.Info{Modes: c.modes})
		if c.err == "" {
			if err != nil {
				t.Errorf("%v of %v: %v", c.mode, c.modes, err)
			}
		} else if !errors.Is(err, driver.ErrInvalid) || err.Error() != c.err {
			t.Errorf("%v of %v: %v, want %s", c.mode, c.modes, err, c.err)
		}
	}
}

// A shared lock has a list of its holders; each of them can be the target of a break.
func TestSharedRecord(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	r := driver.Record{Name: "n", State: driver.StateHeld, Owner: "host/2", Token: 8, Holders: []driver.Holder{
		{Owner: "host/1", Token: 7, TTL: time.Minute, Remaining: 3 * time.Second, RemainingKnown: true, AcquiredAt: at, RenewedAt: at,
			Broken: true},
		{Owner: "host/2", Token: 8},
	}}
	const want = `{"name":"n","state":"held","owner":"host/2","token":8,"holders":[` +
		`{"owner":"host/1","token":7,"ttl":"1m0s","remaining":"3s","acquiredAt":"2026-01-02T15:04:05Z",` +
		`"renewedAt":"2026-01-02T15:04:05Z","broken":true},` +
		`{"owner":"host/2","token":8}]}`
	if got, err := json.Marshal(r); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for token, there := range map[uint64]bool{7: true, 8: true, 6: false, 9: false} {
		if affects, err := r.CheckTarget(driver.BreakToken(token)); there != affects || there != (err == nil) {
			t.Errorf("token %d: %v, %v", token, affects, err)
		}
	}
}

// A shared request has a short owner and no data: all holders are in one record, and the data belong to all.
func TestSharedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*driver.Request)
		field  string // empty if the request is valid
	}{
		"as it is":           {func(*driver.Request) {}, ""},
		"the longest owner":  {func(r *driver.Request) { r.Owner = strings.Repeat("x", driver.MaxSharedOwner) }, ""},
		"a longer owner":     {func(r *driver.Request) { r.Owner = strings.Repeat("x", driver.MaxSharedOwner+1) }, "Owner"},
		"data":               {func(r *driver.Request) { r.Data = []byte("x") }, "Data"},
		"empty data":         {func(r *driver.Request) { r.Data = []byte{} }, "Data"},
		"data, if exclusive": {func(r *driver.Request) { r.Data, r.Mode = []byte("x"), driver.Exclusive }, ""},
	} {
		req := driver.Request{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Second, Mode: driver.Shared}
		c.change(&req)
		err := req.Validate(driver.Info{Modes: driver.Modes{Shared: true}})
		var invalid *driver.InvalidError
		if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &invalid) || invalid.Field != c.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of a refused request names one of the holders of a shared lock, and how many there are.
func TestSharedHeldError(t *testing.T) {
	err := &driver.HeldError{Record: driver.Record{Name: "n", Owner: "gone", Token: 9,
		Holders: []driver.Holder{{Owner: "a", Token: 7}, {Owner: "b", Token: 8}}}}
	if got, want := err.Error(), `holdfast: lock "n" is held by "b" (shared by 2, token 8)`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
