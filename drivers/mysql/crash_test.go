package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// A server that flushes each commit is killed again and again while clients compete. No two hold the lock at once, and no token falls.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--sync-binlog=1"}})
	var lockers []*Locker
	for range 4 {
		lockers = append(lockers, openAt(t, s.URL(), WithCommandTimeout(time.Second)))
	}
	var holder atomic.Pointer[string]
	var last, grants atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i, l := range lockers {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprint(i, "-", n)
				req := request("n", id)
				req.TTL = 20 * time.Second
				began := time.Now()
				lease, err := l.TryAcquire(ctx, req)
				if err != nil {
					if !errors.Is(err, driver.ErrHeld) { // it may be held without an answer
						_ = l.Release(ctx, driver.Lease{Name: "n", ID: req.ID})
					}
					time.Sleep(time.Millisecond)
					continue
				}
				grants.Add(1)
				if !holder.CompareAndSwap(nil, &id) && time.Since(began) < req.TTL {
					t.Errorf("%s was granted the lock, and another holds it", id)
				}
				if before := last.Swap(lease.Token); lease.Token <= before {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				if _, err = l.Renew(ctx, lease); errors.Is(err, driver.ErrLost) && time.Since(began) < req.TTL {
					t.Errorf("%s has lost the lock: %v", id, err)
				}
				holder.Store(nil)
				for l.Release(ctx, driver.Lease{Name: "n", ID: req.ID}) != nil && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for range 5 {
		before := grants.Load()
		for end := time.Now().Add(30 * time.Second); grants.Load() < before+10 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if grants.Load() < before+10 {
			t.Errorf("%d grants within 30 s of the restart", grants.Load()-before)
		}
		if err := errors.Join(s.Kill(), s.Restart(context.WithoutCancel(ctx))); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	clients.Wait()
}
