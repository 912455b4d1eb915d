package engine

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Without a hook nothing is between a Client and its driver.
func TestClientWithoutAHookCallsItsDriver(t *testing.T) {
	l := memory.New()
	for _, hook := range []telemetry.Hook{nil, telemetry.Ignore{}} {
		c, err := New(l, Config{Hook: hook})
		if err != nil {
			t.Fatal(err)
		}
		if direct := c.locker == l; direct != (hook == nil) {
			t.Errorf("with the hook %v the calls go to a %T", hook, c.locker)
		}
		if c.Locker() != l {
			t.Errorf("with the hook %v the program gets a %T", hook, c.Locker())
		}
	}
}
