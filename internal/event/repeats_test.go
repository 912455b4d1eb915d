package event_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
)

// What lasts is reported at once, then at growing distances with the count, and again at once after a
// long time without it.
func TestRepeats(t *testing.T) {
	var r event.Repeats
	start := time.Now()
	var at []int
	for s := range 200 {
		if n, report := r.Note("acquire", "job", start.Add(time.Duration(s)*time.Second)); report {
			at = append(at, s)
			if n.Times != s+1 || n.In != time.Duration(s)*time.Second {
				t.Errorf("after %d s: %+v", s, n)
			}
		}
	}
	if want := []int{0, 2, 6, 14, 30, 62, 122, 182}; !slices.Equal(at, want) {
		t.Errorf("reported after %v s, want %v", at, want)
	}
	for _, c := range []struct {
		what, name string
		after      time.Duration
		times      int
	}{{"acquire", "other", 200 * time.Second, 1}, {"renew", "job", 200 * time.Second, 1}, {"acquire", "job", time.Hour, 1}} {
		if n, report := r.Note(c.what, c.name, start.Add(c.after)); !report || n.Times != c.times {
			t.Errorf("%+v: %+v, reported: %v", c, n, report)
		}
	}
}

// Thousands of names that fail together make a few reports, not thousands.
func TestRepeatsOfManyNames(t *testing.T) {
	var r event.Repeats
	now := time.Now()
	reports, last := 0, event.Count{}
	for s := range 60 {
		for i := range 5000 {
			if n, report := r.Note("acquire", fmt.Sprint(i), now.Add(time.Duration(s)*time.Second)); report {
				reports++
				last = n
			}
		}
	}
	if reports > 6*11 || last.Times < 1 {
		t.Errorf("%d reports, the last %+v", reports, last)
	}
}
