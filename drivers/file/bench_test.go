package file

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
)

// BenchmarkHistory compares each call on records with a full history with the same call on records
// without one. It is to be run with -benchtime 1x.
func BenchmarkHistory(b *testing.B) {
	const pairs = 300
	lockers := map[bool]*Locker{}
	for kept, n := range map[bool]int{false: 0, true: driver.DefaultHistory} {
		l, err := New(b.TempDir(), WithHistory(n))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close(b.Context()) })
		lockers[kept] = l
	}
	lease := func(i int) driver.Lease {
		return driver.Lease{Name: fmt.Sprint(i), ID: driver.NewLeaseID("a"), TTL: time.Minute}
	}
	acquire := func(l *Locker, i int) error {
		_, err := l.TryAcquire(b.Context(), driver.Request{Name: lease(i).Name, ID: lease(i).ID, Owner: "host.example.com/1234",
			TTL: time.Minute})
		return err
	}
	renew := func(l *Locker, i int) error { return errOf(l.Renew(b.Context(), lease(i))) }
	release := func(l *Locker, i int) error { return l.Release(b.Context(), lease(i)) }
	each := func(call func(*Locker, int) error) {
		for _, l := range lockers {
			for i := range pairs {
				if err := call(l, i); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for range driver.DefaultHistory { // fills the histories
		each(acquire)
		each(release)
	}
	for _, c := range []struct {
		name string
		call func(*Locker, int) error
	}{{"Acquire", acquire}, {"Renew", renew}, {"Release", release}} { // in this order
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				ratio.Run(b, pairs, func(i int) error { return c.call(lockers[false], i) },
					func(i int) error { return c.call(lockers[true], i) }).Report(b)
			}
		})
	}
}
