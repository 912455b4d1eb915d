package driver_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// The kinds of the contract pass, and no other.
func TestWakeupValidate(t *testing.T) {
	for _, kind := range []driver.WakeupKind{driver.MayBeFree, driver.WakingBegan, driver.WakingEnded} {
		if err := (driver.Wakeup{Kind: kind}).Validate(); err != nil {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	for kind, want := range map[driver.WakeupKind]string{
		3:   "holdfast: Wakeup.Kind 3 is invalid: must be MayBeFree, WakingBegan or WakingEnded",
		255: "holdfast: Wakeup.Kind 255 is invalid: must be MayBeFree, WakingBegan or WakingEnded",
	} {
		if err := (driver.Wakeup{Kind: kind}).Validate(); !errors.Is(err, driver.ErrInvalid) || err.Error() != want {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}
