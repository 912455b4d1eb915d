package describe

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The holder of a lock that is not broken may renew it until it is: the time left of before is no limit. Some backends do not know it.
func TestBreakSaysWhen(t *testing.T) {
	held := holdfast.Record{Name: "job", State: driver.StateHeld, Owner: "one", Token: 7, TTL: 30 * time.Second}
	known, broken, unknown := held, held, held
	known.Remaining, known.RemainingKnown = 12*time.Second, true
	broken.Remaining, broken.RemainingKnown, broken.Broken = 12*time.Second, true, true
	unknown.TTL = 0
	for what, c := range map[string]struct {
		r    holdfast.Record
		want string
	}{
		"the time left is not known": {held, "when its lease ends, within one TTL (30s)"},
		"the holder may renew":       {known, "when its lease ends, within one TTL (30s)"},
		"the holder is broken":       {broken, "in 12s at the latest"},
		"nothing is known":           {unknown, "when its lease ends"},
	} {
		if got := BreakEffect(c.r, false); !strings.HasSuffix(got, "\nOthers can acquire the lock "+c.want+".") {
			t.Errorf("%s: %s", what, got)
		}
		if got := Broke(c.r, false); got != `broke "job": it becomes free `+c.want+". Its holder is one, token 7" {
			t.Errorf("%s: %s", what, got)
		}
	}
}
