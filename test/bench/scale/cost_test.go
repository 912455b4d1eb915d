//go:build unix

package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkServerCost measures what one operation costs the servers: processor time of all three
// members, and bytes that each secondary replicates, which is what the oplog grows by. The operations
// take turns.
func BenchmarkServerCost(b *testing.B) {
	const leases, batch, reads = 5000, 1000, 50
	s := startServers(b)
	m := newMeter(s)
	client := s.client("hints")
	locker, can := client.Locker(), client.Locker().Capabilities()
	ctx := b.Context()
	request := func(name string) driver.Request {
		return driver.Request{Name: name, ID: driver.NewLeaseID("00000000-0000-4000-8000-000000000000"), Owner: "host/12345", TTL: time.Hour}
	}
	held := make([]holdfast.Lease, leases)
	names := make([]string, batch)
	for i := range held {
		lease, err := locker.TryAcquire(ctx, request(fmt.Sprintf("tenants/tenant-%06d", i)))
		if err != nil {
			b.Fatal(err)
		}
		if held[i] = lease; i < batch {
			names[i] = lease.Name
		}
	}
	operations := []struct {
		name string
		n    int // how many one call of do has done
		do   func() error
	}{
		{"acquire+release", 1000, func() error {
			for i := range 1000 {
				lease, err := locker.TryAcquire(ctx, request(fmt.Sprint("free-", i%10)))
				if err != nil {
					return err
				}
				if err := locker.Release(ctx, lease); err != nil {
					return err
				}
			}
			return nil
		}},
		{"refused-acquire", 1000, func() error {
			r := request(names[0])
			r.ID = driver.NewLeaseID("11111111-0000-4000-8000-000000000000")
			for range 1000 {
				if _, err := locker.TryAcquire(ctx, r); err == nil {
					return fmt.Errorf("a held lock was granted")
				}
			}
			return nil
		}},
		{"renewal-alone", 1000, func() error {
			for _, lease := range held[:1000] {
				if _, err := locker.Renew(ctx, lease); err != nil {
					return err
				}
			}
			return nil
		}},
		{"renewal-in-a-batch", leases, func() error {
			for _, err := range errOf(can.BatchRenewer.RenewBatch(ctx, held)) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"record-in-a-batch-read", reads * batch, func() error {
			for range reads {
				if _, errs := can.BatchInspector.InspectBatch(ctx, "", names); errs[0] != nil {
					return errs[0]
				}
			}
			return nil
		}},
	}
	for b.Loop() {
		cpu, oplog, elapsed := series{}, series{}, series{}
		for range numberFrom(b, envRounds, 2) {
			idle := m.read()
			time.Sleep(5 * time.Second)
			perSecond := m.read().minus(idle).cpu.Seconds() / 5
			for _, op := range operations {
				before, began := m.read(), time.Now()
				if err := op.do(); err != nil {
					b.Fatal(err)
				}
				took := time.Since(began)
				time.Sleep(100 * time.Millisecond) // until all members have it
				used := m.read().minus(before)
				cpu.add(op.name, 1e6*(used.cpu.Seconds()-perSecond*time.Since(began).Seconds())/float64(op.n))
				oplog.add(op.name, float64(used.replicated)/2/float64(op.n))
				elapsed.add(op.name, 1e6*took.Seconds()/float64(op.n))
			}
		}
		cpu.report(b, "server-cpu-µs")
		oplog.report(b, "oplog-bytes")
		elapsed.report(b, "elapsed-µs")
	}
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
