package partitions

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// 64 partitions on a replica set: one instance, then two, then three, then one is disconnected.
func TestPartitions(t *testing.T) {
	serverprocess.Long(t, "starts fleets of processes")
	const ttl, limit = 10 * time.Second, 2 * time.Minute // no lease ends on a busy machine
	f := newFleet(t, 64, ttl)
	f.join(1)
	t.Log("alone: even after", f.waitEven(limit))
	for range 2 {
		minimum := f.minMoves(nil, 1)
		f.join(1)
		t.Logf("one more: even after %v", f.waitEven(limit))
		if moves := f.takeMoves(); moves < minimum || moves > minimum+4 {
			t.Errorf("to %d: %d moves, the minimum is %d", len(f.live), moves, minimum)
		}
	}
	disconnected := f.live[0]
	minimum := f.minMoves(f.live[:1], 0)
	f.disconnect(disconnected)
	t.Logf("one of 3 disconnected: even after %v, TTL %v", f.waitEven(limit), ttl)
	if moves := f.takeMoves(); moves < minimum || moves > minimum+4 {
		t.Errorf("3 to 2: %d moves, the minimum is %d", moves, minimum)
	}
	f.leave(f.live...)
}
