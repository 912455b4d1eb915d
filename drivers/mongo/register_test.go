package mongo

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// Each command of a Locker for measurements is counted, and only these.
func TestOpenCounted(t *testing.T) {
	url := mongotest.WithDatabase(mongotest.URI(t), mongotest.Collection(t).Database().Name())
	d, known := driver.Describe(url)
	if !known || d.OpenCounted == nil || d.Requests != "commands" {
		t.Fatalf("the driver describes %q", d.Requests)
	}
	var sent atomic.Int64
	l, err := d.OpenCounted(t.Context(), url, func() { sent.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	before := sent.Load()
	lease, err := l.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("a"), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if n := sent.Load() - before; n != 1 {
		t.Errorf("an acquire of a free lock counted as %d commands", n)
	}
	before = sent.Load()
	if _, err := l.Renew(t.Context(), lease); err != nil || sent.Load() != before+1 {
		t.Errorf("a renewal counted as %d commands, %v", sent.Load()-before, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if l, err := d.OpenCounted(t.Context(), "mongodb://h", func() {}); err == nil || l != nil {
		t.Errorf("of a wrong URL: %v, %v", l, err)
	}
}
