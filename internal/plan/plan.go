// Package plan decides which instance owns which partitions.
//
// All members read the same records and compute the same plan from them, so there is no
// leader: how many partitions each live member should own, and which of the free ones it
// takes. The plan needs no memory and no agreement. Where two members read different records
// for a moment, the locks decide, and the next reading corrects the plan.
package plan

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

// Nobody is the owner of a free partition. Unknown is the owner of a partition whose owner is not
// known.
const (
	Nobody  = ""
	Unknown = "?"
)

// shares returns how many of n partitions each member should own: n/len(members), or one
// more. The members that own the most get the larger shares, so that only the necessary
// partitions move.
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

// Plan is what one member does about what it has read.
type Plan struct {
	Owned  map[string]int // how many partitions each owner has
	Shares map[string]int // how many each member should own at most
	Take   []int          // the free partitions that this member takes now
}

// New computes the plan of the member me. owners has the owner of each partition.
//
// Members below the smaller share are served first. Only when all have that are the larger
// shares given.
func New(me string, members, owners []string) Plan {
	p := Plan{Owned: make(map[string]int, len(members))}
	var free []int
	for i, o := range owners {
		p.Owned[o]++
		if o == Nobody {
			free = append(free, i)
		}
	}
	p.Shares = shares(members, p.Owned, len(owners))
	dealt := map[string]int{}
	for _, most := range []int{len(owners) / max(len(members), 1), len(owners)} {
		var wants []want
		for _, m := range members {
			if w := min(p.Shares[m], most) - p.Owned[m] - dealt[m]; w > 0 {
				wants = append(wants, want{m, hashName(m), w})
			}
		}
		for len(free) > 0 && len(wants) > 0 {
			best := pick(wants, free[0])
			dealt[wants[best].member]++
			if wants[best].member == me {
				p.Take = append(p.Take, free[0])
			}
			if wants[best].n--; wants[best].n == 0 {
				wants = slices.Delete(wants, best, best+1)
			}
			free = free[1:]
		}
	}
	return p
}

// GivesUp reports whether this owner is about to release partitions.
func (p Plan) GivesUp(owner string) bool {
	return owner != Nobody && owner != Unknown && p.Owned[owner] > p.Shares[owner]
}

// Even reports whether every partition is where it belongs.
func (p Plan) Even() bool {
	for o, n := range p.Owned {
		if o == Nobody || n > p.Shares[o] {
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

// pick chooses the member that takes a free partition, by rendezvous hashing: members that
// see different partitions free, because they read at different times, still agree on most.
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
