package clock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/clock"
)

func TestMonotonicIncreases(t *testing.T) {
	first := clock.Monotonic()
	if second := clock.Monotonic(); second < first {
		t.Errorf("%v after %v", second, first)
	}
}
