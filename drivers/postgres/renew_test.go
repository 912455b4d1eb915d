package postgres

import (
	"errors"
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

// While the clock is behind, the token of a grant that was forgotten comes again. The revision does not.
func TestRevisionOfAForgottenGrant(t *testing.T) {
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	if err := l.Release(bounded(t), acquire(t, l, request("n", "first"))); err != nil {
		t.Fatal(err)
	}
	run(t, c, `UPDATE holdfast_locks SET token = token + 1000000000`)
	run(t, c, `CREATE TABLE replica AS SELECT * FROM holdfast_locks`)
	grant := func(id string) (uint64, driver.Revision) {
		t.Helper()
		lease := acquire(t, l, request("n", id))
		r, err := l.Inspect(bounded(t), "n")
		if err != nil {
			t.Fatal(err)
		}
		return lease.Token, r.Revision
	}
	token, seen := grant("a")
	run(t, c, `SELECT pg_sleep(0.002)`) // the next one comes in a later millisecond
	run(t, c, `UPDATE holdfast_locks AS l SET token = r.token, holder = r.holder, expires = r.expires, renewals = r.renewals
		FROM replica AS r`)
	if again, now := grant("b"); again != token || now == seen {
		t.Errorf("tokens %d and %d; the revisions are the same: %v", token, again, now == seen)
	}
}

// A fail-over can forget a renewal that a waiter has seen. The next renewal has its number, and is another: the waiter does not take the
// lock from a holder that is alive.
func TestReplaceAfterAForgottenRenewal(t *testing.T) {
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	lease := acquire(t, l, request("n", "a"))
	renew := func() driver.Revision {
		t.Helper()
		if _, err := l.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		r, err := l.Inspect(bounded(t), "n")
		if err != nil {
			t.Fatal(err)
		}
		return r.Revision
	}
	renew()
	run(t, c, `CREATE TABLE replica AS SELECT * FROM holdfast_locks`)
	seen := renew()
	run(t, c, `SELECT pg_sleep(0.002)`) // the next one comes in a later millisecond
	run(t, c, `UPDATE holdfast_locks AS l SET renewals = r.renewals, renewed_at = r.renewed_at, expires = r.expires FROM replica AS r`)
	now := renew()
	req := request("n", "b")
	req.Replace = seen
	if lease, err := l.TryAcquire(bounded(t), req); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("it takes the lock from a living holder: %v, %v", lease, err)
	}
	req.Replace = now
	acquire(t, l, req)
}
