package event

import (
	"sync"
	"time"
)

// Repeats says when to report something that happens again and again: at once, and then at distances
// that grow from 2 s to a minute. The zero value is ready to use, and safe for concurrent use.
//
// What happens to many names is counted together once several of them were reported: thousands of
// names can fail for one reason.
type Repeats struct {
	mu    sync.Mutex
	kinds map[string]map[string]*repeat // by what happens, and by name; "" for all others
}

const (
	firstDistance = 2 * time.Second
	maxDistance   = time.Minute
	// maxNames is how many names have reports of their own at a time.
	maxNames = 10
)

// repeat is what has happened since its first report.
type repeat struct {
	since, next time.Time
	distance    time.Duration
	count       int
}

// Count is how often something has happened since its first report.
type Count struct {
	Times int // 1 for the first
	In    time.Duration
	Many  bool // of several names, which are counted together
}

// Note notes that something has happened to a name, and returns whether to report it.
func (r *Repeats) Note(what, name string, now time.Time) (Count, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[string]map[string]*repeat{}
	}
	names := r.kinds[what]
	if names == nil {
		names = map[string]*repeat{}
		r.kinds[what] = names
	}
	if names[name] == nil {
		for known, c := range names {
			if c.over(now) {
				delete(names, known)
			}
		}
		if len(names) >= maxNames {
			name = ""
		}
	}
	c := names[name]
	if c == nil || c.over(now) {
		c = &repeat{since: now, next: now, distance: firstDistance}
		names[name] = c
	}
	c.count++
	if now.Before(c.next) {
		return Count{}, false
	}
	c.next = now.Add(c.distance)
	c.distance = min(2*c.distance, maxDistance)
	return Count{c.count, now.Sub(c.since), name == ""}, true
}

// over reports whether it has not happened for so long that the next time is the first again.
func (c *repeat) over(now time.Time) bool { return now.Sub(c.next) > 2*maxDistance }
