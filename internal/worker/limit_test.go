package worker_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/worker"
)

func TestLimitLeavesRetriesHalf(t *testing.T) {
	for _, tc := range []struct {
		max, retries int
	}{{64, 32}, {5, 2}, {1, 1}} {
		l := worker.Limit{Max: tc.max}
		var uses []worker.Use
		for l.Free(true) > 0 {
			uses = append(uses, l.Take(1, true))
		}
		if len(uses) != tc.retries || l.Free(false) != tc.max-tc.retries || !l.Retrying() {
			t.Errorf("limit %d: %d retries at once, %d left for first attempts", tc.max, len(uses), l.Free(false))
		}
		for l.Free(false) > 0 {
			uses = append(uses, l.Take(1, false))
		}
		if !uses[0].End() || l.Free(false) != 1 || l.Free(true) != 1 {
			t.Errorf("limit %d: a retry has ended, and %d and %d are free", tc.max, l.Free(false), l.Free(true))
		}
	}
}

func TestLimitFreesAUseOnce(t *testing.T) {
	l := worker.Limit{Max: 64}
	batch, single := l.Take(16, true), l.Take(1, false)
	if free := l.Free(false); free != 47 {
		t.Errorf("%d are free, want 47", free)
	}
	if !batch.End() || batch.End() {
		t.Error("a call frees its part once")
	}
	if free := l.Free(false); free != 63 || l.Retrying() {
		t.Errorf("%d are free, want 63", free)
	}
	if !single.End() || l.Free(false) != 64 {
		t.Errorf("%d are free, want 64", l.Free(false))
	}
}
