// Package priority has a priority queue whose elements can be moved and removed.
package priority

import "container/heap"

// Queue is a heap. An element is told its index whenever that changes, and hands it to Fix and
// Remove. It is not safe for concurrent use.
type Queue[E any] struct{ items items[E] }

// New makes an empty queue. before orders the elements; moved is called with each new index of
// an element, and with -1 when it leaves the queue.
func New[E any](before func(x, y E) bool, moved func(e E, index int)) *Queue[E] {
	return &Queue[E]{items[E]{before: before, moved: moved}}
}

// Len is the number of elements.
func (q *Queue[E]) Len() int { return len(q.items.all) }

// First is the element that comes before all others. The queue must not be empty.
func (q *Queue[E]) First() E { return q.items.all[0] }

// All lists the elements in no particular order. Changing the queue invalidates it.
func (q *Queue[E]) All() []E { return q.items.all }

// Push adds an element.
func (q *Queue[E]) Push(e E) { heap.Push(&q.items, e) }

// Fix moves the element at an index after its order has changed.
func (q *Queue[E]) Fix(index int) { heap.Fix(&q.items, index) }

// Remove takes out the element at an index.
func (q *Queue[E]) Remove(index int) { heap.Remove(&q.items, index) }

// items implements heap.Interface.
type items[E any] struct {
	all    []E
	before func(x, y E) bool
	moved  func(e E, index int)
}

func (s *items[E]) Len() int           { return len(s.all) }
func (s *items[E]) Less(i, j int) bool { return s.before(s.all[i], s.all[j]) }
func (s *items[E]) Swap(i, j int) {
	s.all[i], s.all[j] = s.all[j], s.all[i]
	s.moved(s.all[i], i)
	s.moved(s.all[j], j)
}

func (s *items[E]) Push(x any) {
	e := x.(E) //nolint:forcetypeassert // Queue.Push gave it
	s.all = append(s.all, e)
	s.moved(e, len(s.all)-1)
}

func (s *items[E]) Pop() any {
	var none E
	last := len(s.all) - 1
	e := s.all[last]
	s.all[last] = none
	s.all = s.all[:last]
	s.moved(e, -1)
	return e
}
