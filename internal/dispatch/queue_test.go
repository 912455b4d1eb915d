package dispatch_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dispatch"
)

type element struct{ due, index int }

// Elements leave in order, also after some were moved or removed by their index.
func TestQueue(t *testing.T) {
	q := dispatch.NewQueue(func(x, y *element) bool { return x.due < y.due }, func(e *element, i int) { e.index = i })
	var all []*element
	for range 500 {
		e := &element{due: rand.IntN(1000)}
		all = append(all, e)
		q.Push(e)
	}
	var want []int
	for i, e := range all {
		switch i % 3 {
		case 0:
			q.Remove(e.index)
			if e.index != -1 {
				t.Fatalf("a removed element has the index %d", e.index)
			}
			continue
		case 1:
			e.due = rand.IntN(1000)
			q.Fix(e.index)
		}
		want = append(want, e.due)
	}
	slices.Sort(want)
	if q.Len() != len(want) || len(q.All()) != len(want) {
		t.Fatalf("%d elements, want %d", q.Len(), len(want))
	}
	for _, due := range want {
		e := q.First()
		if e.due != due {
			t.Fatalf("got %d, want %d", e.due, due)
		}
		q.Remove(e.index)
	}
}
