package partbench

import (
	"testing"
	"time"
)

// 64 partitions on a replica set: one instance, then three, of which one is then cut off.
func TestPartitions(t *testing.T) {
	const ttl = 6 * time.Second
	f := newFleet(t, 64, ttl)
	f.join(1)
	t.Log("alone: even after", f.untilEven(20*time.Second))
	least := f.leastMoves(nil, 2)
	f.join(2)
	t.Logf("1 to 3: even after %v", f.untilEven(30*time.Second))
	if moves := f.takeMoves(); moves < least || moves > least+4 {
		t.Errorf("1 to 3: %d moves, the least possible are %d", moves, least)
	}
	cut := f.live[0]
	least = f.leastMoves(f.live[:1], 0)
	f.kill(cut)
	t.Logf("one of 3 cut off: even after %v, TTL %v", f.untilEven(ttl+30*time.Second), ttl)
	if moves := f.takeMoves(); moves < least || moves > least+4 {
		t.Errorf("3 to 2: %d moves, the least possible are %d", moves, least)
	}
	f.leave(f.live...)
}
