package lockview_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

func TestSelect(t *testing.T) {
	at := time.Unix(1000, 0)
	s := &lockview.Snapshot{Records: []driver.Record{
		{Name: "a", State: driver.StateHeld, Owner: "Zoe", Remaining: 3 * time.Second, RemainingKnown: true, RenewedAt: at},
		{Name: "b", State: driver.StateFree, Owner: "adam"},
		{Name: "c", State: driver.StateHeld, Owner: "adam", Broken: true, Remaining: time.Second, RemainingKnown: true, Waiters: 2,
			RenewedAt: at.Add(time.Second)},
		{Name: "d", State: driver.StateUnknown},
	}}
	untested := slices.Clone(lockview.Orders)
	for _, c := range []struct {
		selection lockview.Selection
		want      []string
	}{
		{lockview.Selection{}, []string{"a", "b", "c", "d"}},
		{lockview.Selection{Sort: "name", Desc: true}, []string{"d", "c", "b", "a"}},
		{lockview.Selection{Sort: "held"}, []string{"a", "c", "d", "b"}},
		{lockview.Selection{Sort: "state"}, []string{"c", "b", "a", "d"}},
		{lockview.Selection{Sort: "owner"}, []string{"d", "a", "b", "c"}},
		{lockview.Selection{Sort: "left"}, []string{"c", "a", "b", "d"}},
		{lockview.Selection{Sort: "waiters", Desc: true}, []string{"c", "a", "b", "d"}},
		{lockview.Selection{Sort: "renewed", Desc: true}, []string{"c", "a", "b", "d"}},
		{lockview.Selection{Text: "ADA"}, []string{"b", "c"}},
		{lockview.Selection{Text: "zo"}, []string{"a"}},
		{lockview.Selection{State: "broken"}, []string{"c"}},
		{lockview.Selection{State: "held"}, []string{"a"}},
		{lockview.Selection{Text: "nothing"}, nil},
	} {
		untested = slices.DeleteFunc(untested, func(order string) bool { return order == c.selection.Sort })
		var got []string
		for _, r := range s.Select(c.selection) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v selects %q, want %q", c.selection, got, c.want)
		}
	}
	if len(untested) > 0 {
		t.Errorf("no case sorts by %q", untested)
	}
	if counts := s.Count(); counts["held"] != 1 || counts["broken"] != 1 || counts["free"] != 1 || counts["unknown"] != 1 {
		t.Errorf("counted %v", counts)
	}
}
