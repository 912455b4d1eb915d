package azblob

import (
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// Each request of a Locker for measurements is counted.
func TestOpenCounted(t *testing.T) {
	service := azuritetest.Shared(t)
	url := service.URL(service.Fresh(t))
	d, known := driver.Describe(url)
	if !known || d.OpenCounted == nil || d.Requests != "requests" {
		t.Fatalf("the driver describes %q", d.Requests)
	}
	var sent atomic.Int64
	l, err := d.OpenCounted(t.Context(), url, func() { sent.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(t.Context(), "job"); err != nil || sent.Load() != 1 {
		t.Errorf("a read counted as %d requests, %v", sent.Load(), err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if l, err := d.OpenCounted(t.Context(), "azblob://", func() {}); err == nil || l != nil {
		t.Errorf("of a wrong URL: %v, %v", l, err)
	}
}
