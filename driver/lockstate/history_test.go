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
