package driver_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A holder is broken if the target names it or anybody. Nothing means anybody by being zero.
func TestBreakTarget(t *testing.T) {
	held := func(token uint64) driver.Record {
		return driver.Record{Name: "n", State: driver.StateHeld, Token: token}
	}
	shared := driver.Record{State: driver.StateHeld, Token: 8, Holders: []driver.Holder{{Token: 7}, {Token: 8}}}
	for _, c := range []struct {
		target driver.BreakTarget
		record driver.Record
		breaks bool
	}{
		{driver.BreakToken(7), driver.Record{State: driver.StateFree, Token: 7}, true}, // its lease has expired
		{driver.BreakToken(7), held(7), true},
		{driver.BreakToken(7), held(8), false},
		{driver.BreakToken(7), held(0), false}, // the token is unknown
		{driver.BreakToken(math.MaxUint64), held(math.MaxUint64), true},
		{driver.BreakAnybody(), held(7), true},
		{driver.BreakAnybody(), held(0), true},
		{driver.BreakUnknown(), held(0), true},
		{driver.BreakUnknown(), held(7), false},
		{driver.BreakUnknown(), driver.Record{State: driver.StateHeld, Holders: []driver.Holder{{Token: 7}}}, false},
		{driver.BreakUnknown(), driver.Record{State: driver.StateFree}, false},
		{driver.BreakUnknown(), driver.Record{State: driver.StateFree, Token: 7}, false},
		{driver.BreakUnknown(), driver.Record{}, false}, // the state is unknown
		{driver.BreakTarget{}, held(7), false},
		{driver.BreakTarget{}, held(0), false},
		{driver.BreakToken(0), held(0), false},
		{driver.BreakToken(7), driver.Record{State: driver.StateFree, Token: 8}, false},
		{driver.BreakToken(7), driver.Record{State: driver.StateFree}, false},
		{driver.BreakToken(7), driver.Record{Token: 8}, false}, // the state is unknown
		{driver.BreakAnybody(), driver.Record{State: driver.StateFree, Token: 8}, true},
		{driver.BreakToken(7), shared, true}, {driver.BreakToken(8), shared, true}, // each of its holders
		{driver.BreakToken(6), shared, false}, {driver.BreakToken(9), shared, false},
	} {
		affects, err := c.record.CheckTarget(c.target)
		refused := !c.breaks && c.record.State == driver.StateHeld
		if affects != c.breaks || refused != errors.Is(err, driver.ErrHeld) || refused != (err != nil) {
			t.Errorf("%v, %v with token %d: %v, %v", c.target, c.record.State, c.record.Token, affects, err)
		}
	}
	for target, want := range map[driver.BreakTarget]string{
		driver.BreakToken(7): "token 7", driver.BreakAnybody(): "anybody", driver.BreakUnknown(): "unknown holder", {}: "nobody",
	} {
		if got := fmt.Sprint(target); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestValidateBreak(t *testing.T) {
	limits := driver.Limits{MaxName: 5}
	for _, target := range []driver.BreakTarget{driver.BreakToken(1), driver.BreakAnybody(), driver.BreakUnknown()} {
		if err := driver.ValidateBreak("n", target, limits); err != nil {
			t.Errorf("%v: %v", target, err)
		}
	}
	for _, target := range []driver.BreakTarget{{}, driver.BreakToken(0)} {
		var invalid *driver.InvalidError
		if err := driver.ValidateBreak("n", target, limits); !errors.As(err, &invalid) || invalid.Field != "Target" ||
			!strings.Contains(err.Error(), "BreakAnybody") {
			t.Errorf("%#v: %v", target, err)
		}
	}
	if err := driver.ValidateBreak("much too long", driver.BreakAnybody(), limits); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}
