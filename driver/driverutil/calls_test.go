package driverutil_test

import (
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Close waits for every call and goroutine that has begun, and none begins after it.
func TestCalls(t *testing.T) {
	var c driverutil.Calls
	ran := make(chan struct{})
	if !c.Begin() || !c.Go(func() { <-ran }) || c.Running() != 2 {
		t.Fatalf("%d calls are under way, want 2", c.Running())
	}
	ended, first := c.Shut()
	if again, second := c.Shut(); !first || second || again != ended {
		t.Errorf("shut: %v, and again: %v", first, second)
	}
	if c.Begin() || c.Go(func() { t.Error("a goroutine was started") }) {
		t.Fatal("a call began after the end")
	}
	close(ran)
	for c.Running() > 1 { // until the goroutine has ended
		select {
		case <-ended:
			t.Fatal("the wait has ended, and a call has not")
		default:
			runtime.Gosched()
		}
	}
	c.End()
	<-ended

	var idle driverutil.Calls
	ended, _ = idle.Shut()
	<-ended
}
