package waitqueue

import "github.com/holdfast-go/holdfast/driver"

// Key is what a watch is for: the releases of a lock, or the turns of a waiter in its queue.
type Key struct {
	Name   string
	Waiter driver.WaiterID // empty for every release
}

// Watches are the calls of Wake that have not ended, by what they are for. W stands for one of them. The zero
// value is ready to use.
type Watches[W comparable] struct {
	of map[Key][]W
}

// Add adds a watch.
func (s *Watches[W]) Add(key Key, w W) {
	if s.of == nil {
		s.of = map[Key][]W{}
	}
	s.of[key] = append(s.of[key], w)
}

// Remove removes a watch, and reports whether it was there.
func (s *Watches[W]) Remove(key Key, w W) bool {
	all := s.of[key]
	for i, other := range all {
		if other != w {
			continue
		}
		if len(all) == 1 {
			delete(s.of, key)
		} else {
			all[i] = all[len(all)-1]
			clear(all[len(all)-1:])
			s.of[key] = all[:len(all)-1]
		}
		return true
	}
	return false
}

// For returns the watches for a key. The next change of them may change the slice.
func (s *Watches[W]) For(key Key) []W { return s.of[key] }

// All ranges over all watches.
func (s *Watches[W]) All(yield func(Key, W) bool) {
	for key, all := range s.of {
		for _, w := range all {
			if !yield(key, w) {
				return
			}
		}
	}
}

// Empty reports whether there is no watch.
func (s *Watches[W]) Empty() bool { return len(s.of) == 0 }

// Clear removes all watches.
func (s *Watches[W]) Clear() { s.of = nil }
