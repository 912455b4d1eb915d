package holdfast

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

// Everybody reads the same records and computes the same plan from them, so nobody
// has to lead: how many partitions each live member should own, and which of the
// free ones it is to take. The plan needs no memory and no agreement; where two
// members read different things for a moment, the locks decide, and the next look
// mends the plan.

// nobody is the owner of a free partition, stranger that of one whose owner is unknown.
const (
	nobody   = ""
	stranger = "?"
)

// shares returns how many of n partitions each member should own: n/len(members), and
// one more for as many as it takes. Those who own the most already get the larger
// shares, so that no partition moves that need not.
func shares(members []string, owned map[string]int, n int) map[string]int {
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(owned[b], owned[a]), strings.Compare(a, b))
	})
	out := make(map[string]int, len(order))
	for i, m := range order {
		out[m] = n / len(order)
		if i < n%len(order) {
			out[m]++
		}
	}
	return out
}

// plan is what follows from what was read.
type plan struct {
	owned  map[string]int // partitions, by owner
	shares map[string]int // how many a member should own at most; who is none, nothing
	take   []int          // the free partitions that the one who asks is to take now
}

// newPlan is for the member me. owners has the owner of each partition.
//
// Whoever has less than the smaller share is served first: who gets one of the larger
// shares shows only when all have that.
func newPlan(me string, members, owners []string) plan {
	p := plan{owned: make(map[string]int, len(members))}
	var free []int
	for i, o := range owners {
		p.owned[o]++
		if o == nobody {
			free = append(free, i)
		}
	}
	p.shares = shares(members, p.owned, len(owners))
	dealt := map[string]int{}
	for _, most := range []int{len(owners) / max(len(members), 1), len(owners)} {
		var wants []want
		for _, m := range members {
			if w := min(p.shares[m], most) - p.owned[m] - dealt[m]; w > 0 {
				wants = append(wants, want{m, hashName(m), w})
			}
		}
		for len(free) > 0 && len(wants) > 0 {
			best := pick(wants, free[0])
			dealt[wants[best].member]++
			if wants[best].member == me {
				p.take = append(p.take, free[0])
			}
			if wants[best].n--; wants[best].n == 0 {
				wants = slices.Delete(wants, best, best+1)
			}
			free = free[1:]
		}
	}
	return p
}

// moves reports whether what this owner has, or some of it, is about to be freed.
func (p plan) moves(owner string) bool { return owner != nobody && p.owned[owner] > p.shares[owner] }

// even reports whether nothing is to move.
func (p plan) even() bool {
	for o, n := range p.owned {
		if o == nobody || n > p.shares[o] {
			return false
		}
	}
	return true
}

// want is how many partitions a member is short of.
type want struct {
	member string
	hash   uint64
	n      int
}

// pick chooses who takes a free partition, by rendezvous hashing: of members who see
// different partitions free, because they looked at different times, most
// still agree on each.
func pick(wants []want, partition int) (best int) {
	var most uint64
	for i, w := range wants {
		if s := mix(w.hash + uint64(partition)*0x9e3779b97f4a7c15); i == 0 || s > most {
			best, most = i, s
		}
	}
	return best
}

func hashName(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// mix is the finalizer of SplitMix64: each bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
