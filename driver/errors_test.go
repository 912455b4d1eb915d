package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestErrorTexts(t *testing.T) {
	held := &driver.HeldError{Record: driver.Record{
		Name: "billing", State: driver.StateHeld, Owner: "host/1", Token: 7,
		Remaining: 12*time.Second + 345678*time.Microsecond, RemainingKnown: true, Broken: true,
	}}
	shared := &driver.HeldError{Record: driver.Record{Name: "n", Owner: "gone", Token: 9,
		Holders: []driver.Holder{{Owner: "a", Token: 7}, {Owner: "b", Token: 8}}}}
	for _, c := range []struct {
		text any
		want string
	}{
		{held, `holdfast: lock "billing" is held by "host/1" (token 7, 12.346s left, broken)`},
		{shared, `holdfast: lock "n" is held by "b" (shared by 2, token 8)`}, // one of its holders, and how many there are
		{&driver.HeldError{Record: driver.Record{Name: "billing"}}, `holdfast: lock "billing" is held`},
		{driver.Invalid("TTL", "2s", "from 15s to 1m"), "holdfast: TTL 2s is invalid: must be from 15s to 1m"},
		{&driver.OpError{Op: "acquire", Backend: "mongodb", Name: "billing", Err: driver.ErrClosed},
			`holdfast: acquire "billing" on mongodb: closed`},
		{&driver.OpError{Op: "acquire", Backend: "file", Name: "n", Err: driver.Denied(errors.New("read-only"))},
			`holdfast: acquire "n" on file: read-only`},
		{&driver.OpError{Op: "list", Backend: "file", Err: driver.ErrClosed}, "holdfast: list on file: closed"},
		{&driver.OpError{Op: "connect", Backend: "mongodb", Err: context.Canceled}, "holdfast: connect to mongodb: context canceled"},
		// Records of package cas have these texts.
		{driver.ByServer, "by the server"}, {driver.ByObservation, "by observation"}, {driver.Expiry(0), "not declared"},
		{driver.GrantsSurvive, "grants survive"}, {driver.GrantsMayBeForgotten, "grants may be forgotten"}, {driver.Failover(0), "not declared"},
	} {
		if got := fmt.Sprint(c.text); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Each error matches its own sentinel, also when it is wrapped. Only the sentinels mean that the
// outcome is known.
func TestErrorMeanings(t *testing.T) {
	sentinels := []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed, driver.ErrDenied,
		driver.ErrDamaged}
	code, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+) += Errorf\("(.*)"\)`).FindAllStringSubmatch(string(code), -1) {
		if m[1] != "ErrIDReleased" && !slices.ContainsFunc(sentinels, func(s error) bool { return driver.ErrorText(s) == m[2] }) {
			t.Errorf("this test lacks %s", m[1])
		}
	}
	for _, s := range sentinels {
		if !driver.OutcomeKnown(s) {
			t.Errorf("after %v the outcome is unknown", s)
		}
	}
	for _, c := range []struct {
		err  error
		want error // nil: none
	}{
		{&driver.HeldError{}, driver.ErrHeld},
		{driver.Invalid("TTL", "2s", "more"), driver.ErrInvalid},
		{driver.ErrLost, driver.ErrLost},
		{driver.ErrConflict, driver.ErrConflict},
		{driver.ErrClosed, driver.ErrClosed},
		{driver.Denied(errors.New("read-only")), driver.ErrDenied},
		{driver.Damaged(errors.New("empty")), driver.ErrDamaged},
		{context.DeadlineExceeded, nil},
		{errors.New("no primary"), nil},
	} {
		for _, err := range []error{c.err, &driver.OpError{Op: "acquire", Backend: "memory", Name: "n", Err: c.err},
			fmt.Errorf("more: %w", c.err)} {
			for _, sentinel := range sentinels {
				if got := errors.Is(err, sentinel); got != errors.Is(sentinel, c.want) {
					t.Errorf("%v matches %v: %v", err, sentinel, got)
				}
			}
			if got := driver.OutcomeKnown(err); got != (c.want != nil) {
				t.Errorf("%v: the outcome is known: %v", err, got)
			}
		}
	}
	if !driver.OutcomeKnown(nil) {
		t.Error("the outcome of a success is unknown")
	}
}

// That a request was not sent is what the outermost OpError says. The error of another call may be wrapped in it, and a known
// outcome is what it is.
func TestNotSent(t *testing.T) {
	unsent := &driver.OpError{Op: "acquire", Backend: "mongodb", Name: "n", Err: errors.New("refused"), NotSent: true}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("refused"), false},
		{unsent, true},
		{fmt.Errorf("more: %w", unsent), true},
		{&driver.OpError{Op: "acquire", Backend: "mongodb", Name: "m", Err: fmt.Errorf("%w (%w)", context.Canceled, unsent)}, false},
		{&driver.OpError{Op: "acquire", Name: "n", Err: driver.ErrClosed, NotSent: true}, false},
		{&driver.OpError{Op: "acquire", Name: "n", Err: driver.Denied(errors.New("no credential")), NotSent: true}, false},
	} {
		if got := driver.NotSent(c.err); got != c.want {
			t.Errorf("%v: not sent: %v", c.err, got)
		}
		if c.want && driver.OutcomeKnown(c.err) {
			t.Errorf("%v: the outcome is known, so it would not be sent again", c.err)
		}
	}
}
