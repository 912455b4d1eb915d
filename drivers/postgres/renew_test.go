package postgres

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Without autovacuum, renewals take the places of their rows' old versions, and add nothing to the indexes.
func TestRenewalsLeaveTheTableSmall(t *testing.T) {
	serverprocess.Long(t, "runs the rules of the queue thousands of times")
	// A server of its own: any snapshot in the database keeps old versions.
	at := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"autovacuum": "off"}}).Database(t)
	l, watch := open(t, at), client(t, at)
	leases := make([]driver.Lease, 100)
	for i := range leases {
		leases[i] = acquire(t, l, request(fmt.Sprint("lease-", i), fmt.Sprint(i)))
	}
	size := func() int64 { return scan[int64](t, watch, `SELECT pg_total_relation_size('holdfast_locks')`) }
	first := size()
	for range 120 {
		_, errs := l.RenewBatch(t.Context(), leases)
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if last := size(); last > 2*first {
		t.Errorf("%d bytes became %d with 12,000 renewals", first, last)
	}
}
