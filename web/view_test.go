package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// An instance that has partitions of many groups costs about as much as many instances with one each.
func TestInstanceWithManyGroups(t *testing.T) {
	const groups = 40_000
	// The best of three runs, because others use the machine.
	measure := func(owner func(i int) string, instances int) (best time.Duration) {
		s := &lockview.Snapshot{}
		for i := range groups {
			s.Records = append(s.Records, driver.Record{Name: fmt.Sprintf("group-%05d/partition-0000", i), State: driver.StateHeld, Owner: owner(i)})
		}
		best = time.Hour
		for range 3 {
			began := time.Now()
			v := instancesOf(s, query{page: 1, size: 1})
			best = min(best, time.Since(began))
			if v.Total != instances || len(v.Instances[0].Partitions) != groups/instances {
				t.Fatalf("%d instances, the first with %d groups", v.Total, len(v.Instances[0].Partitions))
			}
		}
		return best
	}
	many := measure(func(i int) string { return fmt.Sprintf("web-%d", i) }, groups)
	one := measure(func(int) string { return "web" }, 1)
	if one > 10*many {
		t.Errorf("%d groups of one instance took %s, of as many instances %s", groups, one, many)
	}
}
