package partbench

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/locktest"
)

// 64 partitions on a replica set: one instance, then three, then one is disconnected.
func TestPartitions(t *testing.T) {
	const ttl, limit = 10 * time.Second, 2 * time.Minute // no lease ends on a busy machine
	f := newFleet(t, 64, ttl)
	f.join(1)
	t.Log("alone: even after", f.waitEven(limit))
	minimum := f.minMoves(nil, 2)
	// If one of the two is slow to start, the other first gets more than its share.
	oneByOne := locktest.LeastMoves(f.n, nil, []int{f.n}, 1) + locktest.LeastMoves(f.n, nil, []int{f.n / 2, f.n / 2}, 1)
	f.join(2)
	t.Logf("1 to 3: even after %v", f.waitEven(limit))
	if moves := f.takeMoves(); moves < minimum || moves > oneByOne+4 {
		t.Errorf("1 to 3: %d moves, the minimum is %d, one by one %d", moves, minimum, oneByOne)
	}
	disconnected := f.live[0]
	minimum = f.minMoves(f.live[:1], 0)
	f.disconnect(disconnected)
	t.Logf("one of 3 disconnected: even after %v, TTL %v", f.waitEven(limit), ttl)
	if moves := f.takeMoves(); moves < minimum || moves > minimum+4 {
		t.Errorf("3 to 2: %d moves, the minimum is %d", moves, minimum)
	}
	f.leave(f.live...)
}
