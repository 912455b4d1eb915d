package renewal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Without batches, renewals run concurrently up to a limit, and leases whose renewals hang or never return do not delay the others.
func TestRenewalsOneByOneAreLimited(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"hang": {Hang: true}, "never return": {Delay: 10 * time.Minute, IgnoreContext: true, Refuse: locktest.ErrInjected},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			ill := func(l holdfast.Lease) bool { return strings.HasSuffix(l.Name, "7") }
			counted := locktest.NewCallGauge(locktest.NewFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) (none locktest.Fault) {
				switch {
				case op != locktest.OpRenew:
					return none
				case ill(l):
					return ft
				}
				return locktest.Fault{Delay: 5 * time.Millisecond}
			}), 0)
			holds := lockMany(t, locktest.NewClient(t, counted), 4000, 10*time.Millisecond)
			time.Sleep(3 * time.Minute)
			for _, h := range holds {
				if err := h.Err(); ill(h.Lease()) != errors.Is(err, holdfast.ErrLost) {
					t.Fatalf("%q: %v", h.Name(), err)
				}
			}
			if worst := counted.Highest(driver.MethodRenew); ft.Hang && worst > 64 { // those that never return count no longer
				t.Errorf("%d renewals at once", worst)
			}
		})
	}
}

// Calls that never return free the limit, also when their leases were released meanwhile.
func TestRenewalsOfReleasedLeasesFreeTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, locktest.NeverAnswers(t, memory.NewStore(), locktest.OpRenew))
		var ill []*holdfast.Hold
		for i := range 64 {
			ill = append(ill, locktest.MustLock(t, c, fmt.Sprint("ill ", i)))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 10, 0)
		time.Sleep(6 * time.Second) // their renewals are under way
		for _, h := range ill {
			locktest.Release(t, h)
		}
		time.Sleep(3 * time.Minute)
		allHeld(t, well)
	})
}

// So they do when their leases were lost meanwhile.
func TestRenewalsOfLostLeasesFreeTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NeverAnswers(t, memory.NewStore(), locktest.OpRenew)
		deaf := f.Faults
		f.Faults = func(op string, n int, l holdfast.Lease) locktest.Fault {
			if ft := deaf(op, n, l); ft.IgnoreContext || op != locktest.OpRenew || n%2 == 0 {
				return ft
			}
			return locktest.Fault{Refuse: locktest.ErrInjected} // so that the others need the retries' part of the limit
		}
		c := locktest.NewClient(t, f)
		for i := range 400 {
			locktest.MustLock(t, c, fmt.Sprint("ill ", i))
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		well := lockMany(t, c, 100, 10*time.Millisecond)
		time.Sleep(3 * time.Minute)
		allHeld(t, well)
	})
}

// Renewals that hang and are retried leave half of the limit to the others, which are renewed
// when they are due.
func TestHungRetriesLeaveHalfOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			switch {
			case op != locktest.OpRenew:
				return locktest.Fault{}
			case strings.HasPrefix(l.Name, "ill "):
				return locktest.Fault{Hang: true}
			}
			return locktest.Fault{Delay: 5 * time.Millisecond}
		})
		for i := range 80 { // 64 are sent at 10 s and fail at 13 s
			locktest.MustLock(t, c, fmt.Sprint("ill ", i))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 40, 0)
		time.Sleep(10*time.Second + 100*time.Millisecond) // the others are due at 15 s
		for _, h := range well {
			if in := h.LostIn(); in < 24*time.Second {
				t.Fatalf("%q is lost in %v: it was not renewed at its time", h.Name(), in)
			}
		}
	})
}

// Thousands of leases of minutes, whose batches are slow or hang, do not delay those of a second:
// neither by the limit nor by a long request timeout.
func TestShortLeasesBesideLongOnes(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"slow": {Delay: 500 * time.Millisecond}, "hung": {Hang: true}, "deaf": {Delay: 20 * time.Second, Refuse: locktest.ErrInjected},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
				if leases[0].TTL > time.Second || len(leases) > 3 {
					return ft
				}
				return locktest.Fault{Delay: 10 * time.Millisecond}
			})
			c := locktest.NewClient(t, b)
			for _, name := range locktest.Names("long", 3000) {
				locktest.MustLock(t, c, name, holdfast.WithTTL(10*time.Minute))
			}
			short := lockMany(t, c, 3, 0, holdfast.WithTTL(time.Second))
			time.Sleep(5 * time.Minute)
			allHeld(t, short)
			if n, _, _ := b.sent(); n < 500 {
				t.Errorf("%d batches: the short leases are not renewed together", n)
			}
		})
	}
}
