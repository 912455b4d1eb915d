package dispatch

import "testing"

func TestLimitLeavesRetriesHalf(t *testing.T) {
	for _, tc := range []struct {
		max, retries int
	}{{64, 32}, {5, 2}, {1, 1}} {
		l := limit{max: tc.max}
		var uses []use
		for l.free(true) > 0 {
			uses = append(uses, l.take(1, true))
		}
		if len(uses) != tc.retries || l.free(false) != tc.max-tc.retries || l.retrying == 0 {
			t.Errorf("limit %d: %d retries at once, %d left for first attempts", tc.max, len(uses), l.free(false))
		}
		for l.free(false) > 0 {
			uses = append(uses, l.take(1, false))
		}
		if !uses[0].end() || l.free(false) != 1 || l.free(true) != 1 {
			t.Errorf("limit %d: a retry has ended, and %d and %d are free", tc.max, l.free(false), l.free(true))
		}
	}
}

func TestLimitFreesAUseOnce(t *testing.T) {
	l := limit{max: 64}
	batch, single := l.take(16, true), l.take(1, false)
	if free := l.free(false); free != 47 {
		t.Errorf("%d are free, want 47", free)
	}
	if !batch.end() || batch.end() {
		t.Error("a call frees its part once")
	}
	if free := l.free(false); free != 63 || l.retrying > 0 {
		t.Errorf("%d are free, want 63", free)
	}
	if !single.end() || l.free(false) != 64 {
		t.Errorf("%d are free, want 64", l.free(false))
	}
}
