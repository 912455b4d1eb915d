package renewal_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

func TestRenewalsOfReleasedLeasesKeepNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, locktest.NeverAnswers(t, memory.NewStore(), locktest.OpRenew))
		var ill []*holdfast.Hold
		for i := range 64 {
			ill = append(ill, locktest.MustLock(t, c, fmt.Sprint("ill ", i)))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 10, 0)
		time.Sleep(6 * time.Second) // the ill are being renewed
		for _, h := range ill {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(3 * time.Minute)
		allHeld(t, well)
	})
}

func TestRenewalsOfLostLeasesKeepNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NeverAnswers(t, memory.NewStore(), locktest.OpRenew)
		deaf := f.Faults
		f.Faults = func(op string, n int, l holdfast.Lease) locktest.Fault {
			if ft := deaf(op, n, l); ft.IgnoreContext || op != locktest.OpRenew || n%2 == 0 {
				return ft
			}
			return locktest.Fault{Refuse: locktest.ErrInjected} // so that the others need the places of retries
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

// Renewals that hang and are tried again leave half of the places to the others, which are
// renewed when they are due.
func TestHungRetriesLeavePlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			switch {
			case op != locktest.OpRenew:
				return locktest.Fault{}
			case strings.HasPrefix(l.Name, "ill "):
				return locktest.Fault{Hang: true}
			}
			return locktest.Fault{Delay: 5 * time.Millisecond}
		}))
		for i := range 80 { // 64 are sent at 10 s and fail at 13 s
			locktest.MustLock(t, c, fmt.Sprint("ill ", i))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 40, 0)
		time.Sleep(10*time.Second + 100*time.Millisecond) // the well are due at 15 s
		for _, h := range well {
			if in := h.LostIn(); in < 24*time.Second {
				t.Fatalf("%q is lost in %v: it was not renewed at its time", h.Name(), in)
			}
		}
	})
}

// A call gives its place back once, also if it was given up before it returned.
func TestLateRenewalGivesItsPlaceBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &locktest.RenewalGauge{Faulty: locktest.NewFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			switch {
			case op != locktest.OpRenew:
				return locktest.Fault{}
			case n <= 64:
				return locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true}
			}
			return locktest.Fault{Delay: 100 * time.Millisecond}
		})}
		c := locktest.NewClient(t, counted)
		holds := lockMany(t, c, 64, 0)
		time.Sleep(10 * time.Second)
		for i := range 300 { // due at 20 s
			holds = append(holds, locktest.MustLock(t, c, fmt.Sprint("next ", i)))
		}
		time.Sleep(9 * time.Second) // the late calls have returned
		counted.Highest.Store(0)
		time.Sleep(5 * time.Second)
		if n := counted.Highest.Load(); n != 64 {
			t.Errorf("%d renewals at once, want 64", n)
		}
		allHeld(t, holds)
	})
}
