package driver_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestErrorf(t *testing.T) {
	inner := errors.New("holdfast: inner")
	other := errors.New("other")
	for want, err := range map[string]error{
		"holdfast: outer: inner; other":                        driver.Errorf("outer: %w; %w", inner, other),
		"holdfast: outer: other":                               driver.Errorf("outer: %w", other),
		"holdfast: a: b: inner":                                driver.Errorf("a: %w", driver.Errorf("holdfast: b: %w", inner)),
		`holdfast: lock "holdfast: x": inner (inner)`:          driver.Errorf("lock %q: %w (%w)", "holdfast: x", inner, inner),
		`holdfast: lock "a: holdfast: b\" holdfast: c": inner`: driver.Errorf("lock %q: %w", "a: holdfast: b\" holdfast: c", inner),
		"holdfast: one \" alone: inner":                        driver.Errorf("one \" alone: %w", inner),
		"holdfast: it is inner":                                driver.Errorf("it is %w", inner),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if !errors.Is(err, inner) && !errors.Is(err, other) {
			t.Errorf("%v wraps nothing", err)
		}
	}
}
