package lockstate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// ends writes a history as "owner end @ seconds after the start", the latest first.
func ends(history []driver.Tenure) string {
	var all []string
	for _, t := range history {
		text := t.Owner + " " + t.End.String()
		if !t.Until.IsZero() {
			text += fmt.Sprint(" @", t.Until.Sub(start).Seconds())
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestHistory(t *testing.T) {
	toB := func(k *lockstate.Lock, seconds int) { k.Acquire(request("b", 10*time.Second), "b", at(seconds)) }
	for name, c := range map[string]struct {
		do   func(k *lockstate.Lock) // after the grant to a at 0 s, for 10 s
		at   int
		want string
	}{
		"held":                 {func(*lockstate.Lock) {}, 9, ""},
		"refused and repeated": {func(k *lockstate.Lock) { toB(k, 1); k.Acquire(request("a", time.Second), "a", at(1)) }, 2, ""},
		"released":             {func(k *lockstate.Lock) { k.Release("a", at(3)) }, 5, "a released @3"},
		"released twice":       {func(k *lockstate.Lock) { k.Release("a", at(3)); k.Release("a", at(4)) }, 5, "a released @3"},
		"released by another":  {func(k *lockstate.Lock) { k.Release("b", at(3)) }, 5, ""},
		"released, granted":    {func(k *lockstate.Lock) { k.Release("a", at(3)); toB(k, 4) }, 5, "a released @3"},
		"both released": {func(k *lockstate.Lock) { k.Release("a", at(3)); toB(k, 4); k.Release("b", at(5)) }, 5,
			"b released @5, a released @3"},
		"expired":                {func(*lockstate.Lock) {}, 12, "a expired @10"},
		"expired, renewed":       {func(k *lockstate.Lock) { k.Renew("a", 10*time.Second, at(11)) }, 12, ""},
		"expired, granted":       {func(k *lockstate.Lock) { toB(k, 15) }, 16, "a expired @10"},
		"expired, granted again": {func(k *lockstate.Lock) { k.Acquire(request("a", 10*time.Second), "a", at(15)) }, 16, "a expired @10"},
		"taken over": {func(k *lockstate.Lock) {
			req := request("b", time.Hour)
			req.Replace = k.Record("n", at(1)).Revision
			k.Acquire(req, "b", at(4))
		}, 5, "a taken over @4"},
		"broken":             {func(k *lockstate.Lock) { k.Break() }, 5, ""},
		"broken, expired":    {func(k *lockstate.Lock) { k.Break() }, 12, "a broken @10"},
		"broken, granted":    {func(k *lockstate.Lock) { k.Break(); toB(k, 11) }, 12, "a broken @10"},
		"broken, released":   {func(k *lockstate.Lock) { k.Break(); k.Release("a", at(5)) }, 6, "a broken @5"},
		"freed":              {func(k *lockstate.Lock) { k.BreakNow(at(6)); k.BreakNow(at(7)) }, 8, "a freed @6"},
		"broken, freed":      {func(k *lockstate.Lock) { k.Break(); k.BreakNow(at(6)) }, 8, "a freed @6"},
		"ended by the store": {func(k *lockstate.Lock) { k.End(driver.EndExpired, time.Time{}) }, 1, "a expired"},
		"released, not kept": {func(k *lockstate.Lock) { k.Holder = "" }, 5, "a unknown"},
		"granted after that": {func(k *lockstate.Lock) { k.Holder = ""; toB(k, 4); k.Release("b", at(5)) }, 6, "b released @5, a unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			c.do(k)
			for range 2 { // reading changes nothing
				if got := ends(k.PastHolders(driver.MaxHistory, at(c.at))); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			}
		})
	}
	if past := new(lockstate.Lock).PastHolders(driver.MaxHistory, at(0)); len(past) != 0 {
		t.Errorf("a lock that was never granted has the history %+v", past)
	}
}

// The latest tenures stay, the latest last.
func TestKeepHistory(t *testing.T) {
	k := new(lockstate.Lock)
	for i := range driver.MaxHistory + 3 {
		owner := fmt.Sprint("h", i)
		k.Acquire(request(owner, time.Hour), owner, at(i))
		k.Release(owner, at(i))
	}
	past := k.PastHolders(driver.MaxHistory, at(100))
	if len(past) != driver.MaxHistory || past[0].Owner != "h34" || past[driver.MaxHistory-1].Owner != "h3" {
		t.Errorf("%d tenures: %s", len(past), ends(past))
	}
	past[0].Owner = "changed"
	k.KeepHistory(2)
	if got := ends(k.PastHolders(driver.MaxHistory, at(100))); got != "h34 released @34, h33 released @33" {
		t.Errorf("got %s", got)
	}
	if got := ends(k.PastHolders(1, at(100))); got != "h34 released @34" {
		t.Errorf("got %s", got)
	}
	if k.KeepHistory(0); len(k.History) != 0 {
		t.Errorf("got %+v", k.History)
	}
}
