package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// An error of the library begins with the prefix, and those in it stand there without. Nothing else of a text is changed.
func TestErrorf(t *testing.T) {
	inner := driver.Errorf("inner")
	other := errors.New("other")
	foreign := fmt.Errorf("foreign: %w", inner)
	failed := &driver.OpError{Op: "renew", Backend: "memory", Name: "n", Err: inner}
	marks := &marking{inner}
	for want, err := range map[string]error{
		"holdfast: inner":                               inner,
		"holdfast: outer: inner; other":                 driver.Errorf("outer: %w; %w", inner, other),
		"holdfast: outer: other":                        driver.Errorf("outer: %w", other),
		"holdfast: a: b: inner":                         driver.Errorf("a: %w", driver.Errorf("b: %w", inner)),
		`holdfast: lock "holdfast: x": inner (inner)`:   driver.Errorf("lock %q: %w (%w)", "holdfast: x", inner, inner),
		"holdfast: outer: b: inner":                     driver.Errorf("outer: %w", driver.Damaged(driver.Errorf("b: %w", inner))),
		"holdfast: outer: inner":                        driver.Errorf("outer: %w", marks),
		"holdfast: inner, as text; other":               driver.Errorf("%v, as text; %w", inner, other),
		"holdfast: outer: foreign: " + inner.Error():    driver.Errorf("outer: %w", foreign),
		"holdfast: outer: inner\ninner":                 driver.Errorf("outer: %w", errors.Join(inner, inner)),
		`holdfast: renew "n" on memory: inner`:          failed,
		`holdfast: outer: renew "n" on memory: inner`:   driver.Errorf("outer: %w", failed),
		"holdfast: outer: TTL 2s is invalid: must be 3": driver.Errorf("outer: %w", driver.Invalid("TTL", "2s", "3")),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if !errors.Is(err, inner) && !errors.Is(err, other) && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%v wraps nothing", err)
		}
	}
	for want, err := range map[string]error{"inner": marks, "inner\nother": errors.Join(inner, nil, other), "other": other,
		foreign.Error(): foreign, "closed": driver.ErrClosed, `lock "n" is held`: &driver.HeldError{Record: driver.Record{Name: "n"}}} {
		if got := driver.ErrorText(err); got != want {
			t.Errorf("the text of %q is %q, want %q", err, got, want)
		}
	}
}

// marking is an error with the text of another.
type marking struct{ err error }

func (m *marking) Error() string { return m.err.Error() }
func (m *marking) Unwrap() error { return m.err }
