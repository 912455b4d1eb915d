package renewal

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

type gatedLocker struct {
	driver.Locker
	gate  chan struct{}
	mu    sync.Mutex
	order []string
}

func (l *gatedLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func (l *gatedLocker) Renew(_ context.Context, lease driver.Lease) (driver.Lease, error) {
	if lease.Name == "blocks" {
		<-l.gate
		return lease, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = append(l.order, lease.Name)
	return lease, nil
}

// Renewals that wait for a call get it in the order in which they were due. The end of a lease that waits does not change the
// order of the others. Itself it is not renewed, be it given up or released.
func TestAnEndDoesNotChangeTheOrderOfThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		now := func() time.Duration { return 10*time.Hour + time.Since(begin) }
		l := &gatedLocker{gate: make(chan struct{})}
		r := New(l, now, nil, false)
		p := newPolicy(2*time.Hour, time.Hour, 10*time.Minute, 5*time.Minute)
		add := func(name string, overdue time.Duration) *Entry {
			e := &Entry{}
			e.Init(p, driver.Lease{Name: name, TTL: p.Timing.TTL}, ownerFunc(func(error) {}))
			r.Add(e, now()-p.Timing.RenewEvery-overdue)
			return e
		}
		for range callLimit {
			add("blocks", 10*time.Minute)
		}
		synctest.Wait() // the limit is reached
		waiting := map[int]*Entry{}
		for _, i := range []int{4, 1, 7, 2, 6, 3, 5} { // not in the order of their times
			waiting[i] = add(strconv.Itoa(i), time.Duration(100-i)*time.Second)
			synctest.Wait() // until it waits for a call
		}
		r.GiveUp(waiting[2], errors.New("given up"))
		r.Remove(waiting[5])
		l.gate <- struct{}{} // one call returns; its goroutine makes all that wait, one after another
		synctest.Wait()
		l.mu.Lock()
		if want := []string{"1", "3", "4", "6", "7"}; !slices.Equal(l.order, want) {
			t.Errorf("renewed in the order %v, want %v", l.order, want)
		}
		l.mu.Unlock()
		close(l.gate)
		r.Close(context.Background())
		time.Sleep(3 * time.Hour)
	})
}
