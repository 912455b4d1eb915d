package mongo

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// How a tenure ended follows from its times.
func TestEndsOfTenures(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000+int64(s), 0) }
	base := tenure{owner: "o", token: 1, acquired: at(0), expires: at(30), held: true}
	for name, c := range map[string]struct {
		change func(*tenure)
		end    driver.End
		until  time.Time
	}{
		"expired":                      {func(*tenure) {}, driver.EndExpired, at(30)},
		"replaced before the expiry":   {func(x *tenure) { x.taken, x.takenBy = at(29), takenByReplace }, driver.EndTakenOver, at(29)},
		"replaced at the expiry":       {func(x *tenure) { x.taken, x.takenBy = at(30), takenByReplace }, driver.EndExpired, at(30)},
		"replaced after the expiry":    {func(x *tenure) { x.taken, x.takenBy = at(31), takenByReplace }, driver.EndExpired, at(30)},
		"handed over":                  {func(x *tenure) { x.taken, x.takenBy = at(29), takenByHandOver }, driver.EndHandedOver, at(29)},
		"handed over after the expiry": {func(x *tenure) { x.taken, x.takenBy = at(31), takenByHandOver }, driver.EndExpired, at(30)},
		"broken":                       {func(x *tenure) { x.ends.broken = at(5) }, driver.EndBroken, at(30)},
		"released":                     {func(x *tenure) { x.held, x.ends.released = false, at(30) }, driver.EndReleased, at(30)},
		"freed": {func(x *tenure) { x.held, x.ends.freed, x.ends.broken = false, at(30), at(5) }, driver.EndFreed,
			at(30)},
		"broken, and released by its holder": {func(x *tenure) { x.held, x.ends.released, x.ends.broken = false, at(30), at(5) },
			driver.EndBroken, at(30)},
		"released before its grant, by skews": {func(x *tenure) { x.held, x.expires, x.ends.released = false, at(-2), at(-1) },
			driver.EndReleased, at(0)},
	} {
		x := base
		c.change(&x)
		if got := x.describe(); got.End != c.end || !got.Until.Equal(c.until) {
			t.Errorf("%s: %v until %v, want %v until %v", name, got.End, got.Until, c.end, c.until)
		}
	}
}
