package dispatch

import "container/heap"

// Queue is a priority queue: a heap whose elements know their index, for Fix and Remove. It is not safe for
// concurrent use.
type Queue[E any] struct{ items items[E] }

// NewQueue makes an empty queue. before orders the elements. moved is called with each new index of an
// element, and with -1 when the element leaves the queue.
func NewQueue[E any](before func(x, y E) bool, moved func(e E, index int)) *Queue[E] {
	return &Queue[E]{items[E]{before: before, moved: moved}}
}

// Len returns the number of elements.
func (q *Queue[E]) Len() int { return len(q.items.all) }

// First returns the element that comes before all others. The queue must not be empty.
func (q *Queue[E]) First() E { return q.items.all[0] }

// All returns the elements in no particular order. A change of the queue invalidates the result.
func (q *Queue[E]) All() []E { return q.items.all }

// Push adds an element.
func (q *Queue[E]) Push(e E) { heap.Push(&q.items, e) }

// Fix moves the element at an index after its order has changed.
func (q *Queue[E]) Fix(index int) { heap.Fix(&q.items, index) }

// Remove removes the element at an index.
func (q *Queue[E]) Remove(index int) { heap.Remove(&q.items, index) }

// items implements heap.Interface.
type items[E any] struct {
	all    []E
	before func(x, y E) bool
	moved  func(e E, index int)
}

func (q *items[E]) Len() int           { return len(q.all) }
func (q *items[E]) Less(i, j int) bool { return q.before(q.all[i], q.all[j]) }
func (q *items[E]) Swap(i, j int) {
	q.all[i], q.all[j] = q.all[j], q.all[i]
	q.moved(q.all[i], i)
	q.moved(q.all[j], j)
}

func (q *items[E]) Push(x any) {
	e := x.(E) //nolint:forcetypeassert // from Queue.Push
	q.all = append(q.all, e)
	q.moved(e, len(q.all)-1)
}

func (q *items[E]) Pop() any {
	var none E
	last := len(q.all) - 1
	e := q.all[last]
	q.all[last] = none
	if q.all = q.all[:last]; last == 0 && cap(q.all) > 64 {
		q.all = nil // many were due at once
	}
	q.moved(e, -1)
	return e
}
