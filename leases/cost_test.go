package leases_test

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// hollow grants everything and stores nothing, so that only the library's own memory is measured.
type hollow struct{ token atomic.Uint64 }

func (h *hollow) TryAcquire(_ context.Context, r driver.Request) (holdfast.Lease, error) {
	return holdfast.Lease{Name: r.Name, ID: r.ID, Owner: r.Owner, Token: h.token.Add(1), TTL: r.TTL}, nil
}

func (h *hollow) Renew(_ context.Context, l holdfast.Lease) (holdfast.Lease, error) { return l, nil }

func (h *hollow) Release(context.Context, holdfast.Lease) error { return nil }

func (h *hollow) Inspect(context.Context, string) (holdfast.Record, error) {
	return holdfast.Record{}, nil
}

func (h *hollow) Info() driver.Info { return driver.Info{} }

func (h *hollow) Capabilities() driver.Capabilities { return driver.Capabilities{BatchRenewer: h} }

func (h *hollow) Close(context.Context) error { return nil }

func (h *hollow) RenewBatch(_ context.Context, leases []holdfast.Lease) ([]holdfast.Lease, []error) {
	return leases, make([]error, len(leases))
}

// memoryInUse returns the bytes of heap and stacks that are in use.
func memoryInUse() uint64 {
	for range 3 { // finalizers and pools keep memory for more than one cycle
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}

// A lease that is held costs little more than half a KiB of heap and stacks, its name included, and no
// goroutine.
func TestManagerCostOfALease(t *testing.T) {
	const leases, most = 10_000, 640
	names := locktest.Names("devices/in-the-north/", leases)
	bytes, goroutines := memoryInUse(), runtime.NumGoroutine()
	c := locktest.NewClient(t, &hollow{}, holdfast.WithTTL(time.Minute), holdfast.WithRenewEvery(time.Second))
	m := locktest.NewManager(t, c)
	locktest.MustAdd(t, m, names...)
	for end := time.Now().Add(5 * time.Minute); len(m.Leases()) < leases; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d leases are held", len(m.Leases()))
		}
	}
	time.Sleep(3 * time.Second) // renewed meanwhile
	if n := len(m.Leases()); n != leases {
		t.Errorf("%d leases are held", n)
	}
	each, n := math.Inf(1), math.MaxInt
	for try := 0; try < 30 && (each > most || n > 40); try++ { // calls under way need more for a moment
		if try > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		each, n = min(each, (float64(memoryInUse())-float64(bytes))/leases), min(n, runtime.NumGoroutine()-goroutines)
	}
	t.Logf("%.0f bytes for each of %d leases, %d goroutines", each, leases, n)
	if each > most {
		t.Errorf("%.0f bytes for each lease, want at most %d", each, most)
	}
	if n > 40 {
		t.Errorf("%d goroutines for %d leases", n, leases)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(m.Leases()); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	left := float64(memoryInUse()) - float64(bytes)
	t.Logf("%.0f bytes are left for each of %d leases released", left/leases, leases)
	runtime.KeepAlive(names)
}
