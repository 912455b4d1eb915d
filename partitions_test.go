package holdfast_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Instances join, leave and die: the shares become even within a bound, with no more
// moves than must be, and no partition ever has two owners.
func TestPartitionsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 64
		f := newFleet(t, n)
		first := f.join()
		t.Log("1 alone:", f.settle(10*time.Second))
		if m := f.moved(); m != 0 {
			t.Errorf("%d moves with one instance", m)
		}
		f.join()
		f.join()
		t.Log("3:", f.settle(10*time.Second))
		if m, least := f.moved(), n-22; m != least { // the first keeps 22
			t.Errorf("1 to 3 instances: %d moves, want %d", m, least)
		}
		for range 5 {
			f.join()
		}
		t.Log("8:", f.settle(10*time.Second))
		if m, least := f.moved(), 5*8; m != least {
			t.Errorf("3 to 8 instances: %d moves, want %d", m, least)
		}
		f.kill(first)
		f.leave(f.live[0], f.live[1])
		t.Log("5:", f.settle(fleetTTL+10*time.Second))
		if m, least := f.moved(), 3*8; m != least {
			t.Errorf("8 to 5 instances: %d moves, want %d", m, least)
		}
		for _, in := range f.live {
			t.Log(in.name, "looks", in.wire.reads.Load(), "attempts", in.wire.tries.Load())
		}
		f.end()
	})
}
