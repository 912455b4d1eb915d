package leases

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A name that is removed and added while the leases are listed can occur twice. The later lease is the
// present one.
func TestByNameKeepsTheLaterOfOneName(t *testing.T) {
	got := byName([]driver.Lease{{Name: "b", Token: 1}, {Name: "a", Token: 2}, {Name: "b", Token: 3}, {Name: "c", Token: 4},
		{Name: "b", Token: 5}})
	want := []driver.Lease{{Name: "a", Token: 2}, {Name: "b", Token: 5}, {Name: "c", Token: 4}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := byName(nil); got != nil {
		t.Errorf("of no leases: %v", got)
	}
}
