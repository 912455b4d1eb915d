package lockview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// States are the states that [State] returns.
var States = []string{"held", "broken", "free", "unknown"}

// State returns the state of a lock as readers see it: a held lock whose renewals are refused is
// broken.
func State(r *driver.Record) string {
	if r.State == driver.StateHeld && r.Broken {
		return "broken"
	}
	return r.State.String()
}

// Orders are the names of the orders in which locks can be sorted.
var Orders = []string{"name", "held", "state", "owner", "left", "waiters", "renewed"}

// Selection says which locks to show, and in which order.
type Selection struct {
	Text  string // part of the name or of the owner, in any case
	State string // one of States; empty for all
	Sort  string // one of Orders; empty for the name
	Desc  bool
}

// Select returns the locks that a selection shows. Locks that are equal in its order stand in that
// of their names.
func (s *Snapshot) Select(q Selection) []*driver.Record {
	text := strings.ToLower(q.Text)
	found := make([]*driver.Record, 0, len(s.Records))
	for i := range s.Records {
		r := &s.Records[i]
		if (q.State == "" || q.State == State(r)) && (contains(r.Name, text) || ownedBy(r, text)) {
			found = append(found, r)
		}
	}
	byName := q.Sort == "" || q.Sort == "name"
	switch {
	case byName && q.Desc:
		slices.Reverse(found)
	case !byName:
		slices.SortStableFunc(found, func(a, b *driver.Record) int {
			order := compare(q.Sort, a, b)
			if q.Desc {
				return -order
			}
			return order
		})
	}
	return found
}

// ownedBy reports whether the owner, or that of one who shares the lock, contains a text.
func ownedBy(r *driver.Record, lower string) bool {
	if len(r.Holders) == 0 {
		return contains(r.Owner, lower)
	}
	return slices.ContainsFunc(r.Holders, func(h driver.Holder) bool { return contains(h.Owner, lower) })
}

func contains(s, lower string) bool {
	return lower == "" || strings.Contains(strings.ToLower(s), lower)
}

// Record returns the record of a name, or nil.
func (s *Snapshot) Record(name string) *driver.Record {
	at, ok := slices.BinarySearchFunc(s.Records, name, func(r driver.Record, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return &s.Records[at]
}

// Count returns how many locks are in each state.
func (s *Snapshot) Count() map[string]int {
	counts := map[string]int{}
	for i := range s.Records {
		counts[State(&s.Records[i])]++
	}
	return counts
}

func compare(by string, a, b *driver.Record) int {
	switch by {
	case "held":
		return cmp.Compare(heldFirst(a), heldFirst(b))
	case "state":
		return strings.Compare(State(a), State(b))
	case "owner":
		return strings.Compare(a.Owner, b.Owner)
	case "left":
		return cmp.Compare(left(a), left(b))
	case "waiters":
		return cmp.Compare(a.Waiters, b.Waiters)
	default: // "renewed"
		return a.RenewedAt.Compare(b.RenewedAt)
	}
}

// heldFirst sorts the locks that somebody holds, or may hold, before those that are free.
func heldFirst(r *driver.Record) int {
	if r.State == driver.StateFree {
		return 1
	}
	return 0
}

// left sorts locks that are free, or whose time is unknown, behind those that are held.
func left(r *driver.Record) time.Duration {
	if r.State != driver.StateHeld || !r.RemainingKnown {
		return 1 << 62
	}
	return r.Remaining
}
