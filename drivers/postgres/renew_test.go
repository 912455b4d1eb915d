package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// Somebody's open transaction has locked the row of one lease of a batch. The others are renewed, and that one fails: nobody has it, and it
// is not lost. A lease that is lost is.
func TestLockedRowFailsNoOtherRenewal(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, watch := open(t, at), client(t, at)
	leases := make([]driver.Lease, 5)
	for i := range leases {
		leases[i] = acquire(t, l, request(fmt.Sprint("lease-", i), fmt.Sprint(i)))
	}
	if err := l.Release(bounded(t), leases[4]); err != nil {
		t.Fatal(err)
	}
	forgotten, _ := console(t, at, `SELECT FROM holdfast_locks WHERE name = 'lease-2' FOR UPDATE`)
	const renewals = `SELECT sum(renewals)::bigint FROM holdfast_locks WHERE name IN ('lease-0', 'lease-1', 'lease-3')`
	for _, open := range []bool{true, false} {
		before := scan[int64](t, watch, renewals)
		_, errs := l.RenewBatch(bounded(t), leases)
		for i, err := range errs {
			switch {
			case i == 2 && open:
				if err == nil || driver.OutcomeKnown(err) {
					t.Errorf("the lease whose row is locked: %v", err)
				}
			case i == 4 && open: // it waits for the row with the other that was not found
				if err == nil {
					t.Error("a lease that is lost was renewed")
				}
			case i == 4:
				wantError(t, err, driver.ErrLost)
			case err != nil:
				t.Errorf("lease %d, with an open transaction: %v: %v", i, open, err)
			}
		}
		if scan[int64](t, watch, renewals) == before {
			t.Errorf("with an open transaction: %v: nothing was renewed", open)
		}
		if open {
			run(t, forgotten, `ROLLBACK`)
		}
	}
}

// A transaction of a moment, such as a waiter's that enters the queue, makes no renewal fail.
func TestRowThatIsLockedForAMoment(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	leases := make([]driver.Lease, 2)
	for i := range leases {
		leases[i] = acquire(t, l, request(fmt.Sprint("lease-", i), fmt.Sprint(i)))
	}
	first := l.sql.renewFree
	l.sql.renewFree = strings.Replace(first, "WHERE ", "WHERE u.name <> 'lease-1' AND ", 1) // as if its row was locked
	if l.sql.renewFree == first {
		t.Fatal("the test does not know the statement")
	}
	if _, errs := l.RenewBatch(bounded(t), leases); errors.Join(errs...) != nil {
		t.Error(errs)
	}
}

// Many rows are locked, and their holders go on to renew and to release. That keeps no connection from the others.
func TestLockedRowsDelayNoOtherRenewal(t *testing.T) {
	t.Parallel()
	const locked = 24
	at := postgrestest.URL(t)
	l := open(t, at)
	var stuck, healthy []driver.Lease
	for i := range locked {
		stuck = append(stuck, acquire(t, l, request(fmt.Sprint("stuck ", i), "a")))
		healthy = append(healthy, acquire(t, l, request(fmt.Sprint("healthy ", i), "a")))
	}
	console(t, at, `SELECT FROM holdfast_locks WHERE name LIKE 'stuck %' FOR UPDATE`)
	ctx, stop := context.WithCancel(t.Context())
	var trying sync.WaitGroup
	for i, lease := range stuck {
		trying.Go(func() {
			for ctx.Err() == nil {
				if _, err := l.Renew(ctx, lease); errors.Is(err, driver.ErrLost) {
					t.Error(err)
				}
				if i%2 == 0 {
					_ = l.Release(ctx, lease)
				}
			}
		})
	}
	for range 3 {
		if _, errs := l.RenewBatch(bounded(t), append(healthy, stuck[0])); errors.Join(errs[:locked]...) != nil || errs[locked] == nil {
			t.Error(errs)
		}
		for _, lease := range healthy[:8] {
			if _, err := l.Renew(bounded(t), lease); err != nil {
				t.Error(err)
			}
		}
	}
	errs := l.ReleaseBatch(bounded(t), append(healthy, stuck[0]))
	if errors.Join(errs[:locked]...) != nil || errs[locked] == nil || driver.OutcomeKnown(errs[locked]) {
		t.Error(errs)
	}
	stop()
	trying.Wait()
	for i, lease := range append(healthy, stuck[0]) {
		if r, err := l.Inspect(bounded(t), lease.Name); err != nil || (r.State == driver.StateHeld) != (i == locked) {
			t.Errorf("%s is %v, %v", lease.Name, r.State, err)
		}
	}
}
