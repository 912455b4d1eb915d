package postgres

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Backends are terminated and their statements cancelled at random moments of grants, renewals and releases,
// also in batches. One holds a lock at a time, tokens rise, and nothing stays held.
func TestBackendsEndAtRandom(t *testing.T) {
	serverprocess.Long(t, "runs the rules of the queue thousands of times")
	t.Parallel()
	at := postgrestest.URL(t)
	const locks, rounds = 2, 12
	var holders [locks]atomic.Int32
	var last [locks]atomic.Uint64
	var unknown, ended atomic.Int64
	repeat := func(call func() error) error { // until the outcome is certain
		for {
			err := call()
			if err == nil || driver.OutcomeKnown(err) {
				return err
			}
			unknown.Add(1)
			if t.Context().Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	var wg sync.WaitGroup
	for g := range 6 {
		l := open(t, victim(t, at))
		wg.Go(func() {
			n := g % locks
			name := fmt.Sprint("lock ", n)
			for round := 0; round < rounds; {
				req := request(name, fmt.Sprint(g, ".", round, ".", unknown.Load(), time.Now().UnixNano()))
				if g >= locks {
					req.Waiter, req.QueueFor = waiterID, 5*time.Second
				}
				var lease driver.Lease
				err := repeat(func() (err error) { lease, err = l.TryAcquire(bounded(t), req); return err })
				if errors.Is(err, driver.ErrHeld) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err != nil {
					t.Error("acquire", err)
					return
				}
				round++
				if holders[n].Add(1) != 1 {
					t.Errorf("%s has two holders", name)
				}
				if before := last[n].Swap(lease.Token); before >= lease.Token {
					t.Errorf("%s: token %d after %d", name, lease.Token, before)
				}
				if err := repeat(func() error { return errOf(l.Renew(bounded(t), lease)) }); err != nil {
					t.Error("renew", err)
				}
				if err := repeat(func() error {
					_, errs := l.RenewBatch(bounded(t), []driver.Lease{lease, lease})
					return errors.Join(errs...)
				}); err != nil {
					t.Error("renew in a batch", err)
				}
				holders[n].Add(-1)
				if err := repeat(func() error {
					if round%2 == 0 {
						return errors.Join(l.ReleaseBatch(bounded(t), []driver.Lease{lease})...)
					}
					return l.Release(bounded(t), lease)
				}); err != nil {
					t.Error("release", err)
				}
			}
		})
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	control := client(t, at)
	killer.Go(func() {
		for i := 0; ; i++ {
			end := []string{"pg_terminate_backend", "pg_cancel_backend", "pg_cancel_backend"}[i%3]
			// One of those that are in a statement, at random. Each survives for a while, or nobody would finish.
			ended.Add(int64(scan[int](t, control, `SELECT count(`+end+`(pid)) FROM (SELECT pid FROM pg_stat_activity
				WHERE application_name = 'victim' AND datname = current_database() AND state = 'active' ORDER BY random() LIMIT 1) AS v`)))
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(5+i%30) * time.Millisecond):
			}
		}
	})
	wg.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d statements ended, %d outcomes unknown", ended.Load(), unknown.Load())
	if ended.Load() == 0 || unknown.Load() == 0 {
		t.Error("no fault has struck")
	}
	l := open(t, at)
	for n := range locks {
		if r, err := l.Inspect(bounded(t), fmt.Sprint("lock ", n)); err != nil || r.State != driver.StateFree {
			t.Errorf("in the end: %+v, %v", r, err)
		}
	}
}
