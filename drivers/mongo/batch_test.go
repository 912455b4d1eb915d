package mongo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestChunks(t *testing.T) {
	var leases []driver.Lease
	for i := range 2*batchChunkSize + 1 {
		leases = append(leases, driver.Lease{Name: fmt.Sprint(i), ID: driver.NewLeaseID("id"), TTL: time.Duration(1+i%2) * time.Second})
	}
	leases = append(leases, leases[0], driver.Lease{Name: "invalid", ID: driver.NewLeaseID("id")},
		driver.Lease{Name: "no ID", TTL: time.Second})
	seen := map[int]bool{}
	var sizes []int
	for _, chunk := range batchChunks(leases, true) {
		sizes = append(sizes, len(chunk))
		for _, i := range chunk {
			if seen[i] || leases[i].TTL != leases[chunk[0]].TTL {
				t.Errorf("%d is in a wrong chunk, or in two", i)
			}
			seen[i] = true
		}
	}
	if want := []int{500, 500, 1, 1, 1, 1}; len(seen) != len(leases) || !slices.Equal(sizes, want) {
		t.Errorf("%d of %d leases in chunks of %v, want %v", len(seen), len(leases), sizes, want)
	}
}
