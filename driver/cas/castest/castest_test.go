package castest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// counted is a store that does the first write, and refuses all others.
type counted struct {
	cas.Store
	writes []time.Duration // when they came
	began  time.Time
}

func (s *counted) Put(ctx context.Context, _ string, _ []byte, _ string) (cas.Written, error) {
	if ctx.Err() != nil {
		return cas.Written{}, ctx.Err()
	}
	s.writes = append(s.writes, time.Since(s.began))
	if len(s.writes) > 1 {
		return cas.Written{}, cas.ErrConflict
	}
	return cas.Written{Version: "v"}, nil
}

// Each fault does a write as often as it says, and returns what it says. A refusal is answered, and a late write outlives the
// context of its call, but not the test.
func TestFaulty(t *testing.T) {
	for what, c := range map[string]struct {
		fault  castest.Fault
		again  bool // the store has refused a write before
		writes int
		last   time.Duration // when the last of them is done
		err    error
	}{
		"none":                  {writes: 1},
		"lost":                  {fault: castest.Fault{Lost: true}, err: castest.ErrNoAnswer},
		"unanswered":            {fault: castest.Fault{Unanswered: true}, writes: 1, err: castest.ErrNoAnswer},
		"an answered refusal":   {fault: castest.Fault{Unanswered: true}, again: true, writes: 2, err: cas.ErrConflict},
		"late":                  {fault: castest.Fault{Late: time.Second}, writes: 1, last: time.Second, err: castest.ErrNoAnswer},
		"twice":                 {fault: castest.Fault{Twice: true}, writes: 2, err: cas.ErrConflict},
		"refused, but no fault": {again: true, writes: 2, err: cas.ErrConflict},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &counted{began: time.Now()}
			t.Cleanup(func() { // after Faulty has waited
				if len(inner.writes) != c.writes || c.writes > 0 && inner.writes[c.writes-1] != c.last {
					t.Errorf("%s: writes at %v, want %d until %v", what, inner.writes, c.writes, c.last)
				}
			})
			store := castest.Faulty(t, inner, func() castest.Fault { return c.fault })
			if c.again {
				_, _ = inner.Put(t.Context(), "", nil, "")
			}
			ctx, cancel := context.WithCancel(t.Context())
			w, err := store.Put(ctx, "k", nil, "")
			cancel()
			if !errors.Is(err, c.err) || (w.Version != "") != (err == nil) {
				t.Errorf("%s: got %v, %v", what, w, err)
			}
		})
	}
}

// Chance gives every kind of fault, and the same with the same seed. LostAnswers has one kind alone.
func TestChance(t *testing.T) {
	count := func(next func() castest.Fault) (kinds [5]int, all []castest.Fault) {
		for range 1000 {
			f := next()
			switch all = append(all, f); {
			case f.Lost:
				kinds[1]++
			case f.Late > 0:
				kinds[2]++
			case f.Twice:
				kinds[3]++
			case f.Unanswered:
				kinds[4]++
			default:
				kinds[0]++
			}
		}
		return kinds, all
	}
	kinds, all := count(castest.Random(1))
	for i, n := range kinds {
		if n < 40 {
			t.Errorf("%d of 1000 writes have fault %d", n, i)
		}
	}
	if kinds[0] < 400 {
		t.Errorf("%d of 1000 writes have none", kinds[0])
	}
	_, again := count(castest.Random(1))
	for i := range all {
		if all[i] != again[i] {
			t.Fatalf("write %d: %+v, and then %+v", i, all[i], again[i])
		}
	}
	if kinds, _ := count(castest.LostAnswers(1)); kinds[4] < 200 || kinds[0]+kinds[4] != 1000 {
		t.Errorf("LostAnswers: %v", kinds)
	}
}
