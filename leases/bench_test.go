package leases_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// counting is a hollow that counts the calls that renew.
type counting struct {
	hollow
	calls, renewed atomic.Int64
}

func (c *counting) Capabilities() driver.Capabilities { return driver.Capabilities{BatchRenewer: c} }

func (c *counting) RenewBatch(ctx context.Context, leases []holdfast.Lease) ([]holdfast.Lease, []error) {
	c.calls.Add(1)
	c.renewed.Add(int64(len(leases)))
	return c.hollow.RenewBatch(ctx, leases)
}

func (c *counting) Renew(ctx context.Context, l holdfast.Lease) (holdfast.Lease, error) {
	c.calls.Add(1)
	c.renewed.Add(1)
	return c.hollow.Renew(ctx, l)
}

// BenchmarkLeasesInOneProcess holds leases with the default TTL of 30 s on a backend that stores
// nothing, so that only the library is measured: the memory of a lease without the string of its
// name, that of the context which a lease has once the program has asked for it, and the renewals.
func BenchmarkLeasesInOneProcess(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				measureLeases(b, n, 30*time.Second)
			}
			b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		})
	}
}

func measureLeases(b *testing.B, n int, window time.Duration) {
	names := locktest.Names("devices/in-the-north/", n)
	nameSize := float64(memoryPerClone(names))
	l := &counting{}
	c := locktest.NewClient(b, l)
	m := locktest.NewManager(b, c)
	before := memoryInUse()
	each := func() float64 { // the least, without what calls under way need for a moment
		least := memoryInUse()
		for range 4 {
			time.Sleep(200 * time.Millisecond)
			least = min(least, memoryInUse())
		}
		return float64(least-before)/float64(n) - nameSize
	}
	locktest.MustAdd(b, m, names...)
	holds := make([]*holdfast.Hold, n)
	before += uint64(8 * n) // of holds
	for i, name := range names {
		for held := false; !held; {
			if holds[i], held = m.Hold(name); !held {
				time.Sleep(time.Millisecond)
			}
		}
	}
	b.ReportMetric(each(), "bytes/lease")
	calls, renewed, cpu, begin := l.calls.Load(), l.renewed.Load(), processorTime(), time.Now()
	time.Sleep(window)
	took := time.Since(begin)
	b.ReportMetric(float64(l.calls.Load()-calls)/took.Seconds(), "renewal-calls/s")
	b.ReportMetric(float64(l.renewed.Load()-renewed)/took.Seconds(), "renewals/s")
	b.ReportMetric(100*(processorTime()-cpu).Seconds()/took.Seconds(), "cpu-%")
	for _, h := range holds {
		_ = h.Context()
	}
	b.ReportMetric(each(), "bytes/lease-with-context")
	for _, h := range holds {
		_ = h.Context().Done()
	}
	b.ReportMetric(each(), "bytes/lease-with-Done")
	if held := len(m.Leases()); held != n {
		b.Errorf("%d of %d leases are held", held, n)
	}
	runtime.KeepAlive(names)
}

// memoryPerClone returns the bytes that the heap needs for a copy of a name, which a manager keeps.
func memoryPerClone(names []string) int {
	return (len(names[len(names)-1]) + 15) / 16 * 16
}
