package engine

import (
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// noHook is never called.
type noHook struct{ telemetry.Hook }

// A Locker whose calls are reported has every capability of the one below.
func TestMeasuredLockerHasEveryCapability(t *testing.T) {
	l := memory.New()
	had, has := reflect.ValueOf(l.Capabilities()), reflect.ValueOf(measureCalls(l, noHook{}, func() time.Duration { return 0 }).Capabilities())
	for i := range had.NumField() {
		if had.Field(i).IsZero() || has.Field(i).IsZero() {
			t.Errorf("%s: had %v, has %v", had.Type().Field(i).Name, had.Field(i), has.Field(i))
		}
	}
}
