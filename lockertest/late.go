package lockertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// LateReleases makes Lockers whose releases take effect twice, and late: after each grant the last releases
// of that name are sent again. They do nothing unless an ID is used after its release. It is for a Locker
// that uses others: the suite runs over the whole, and the parts are wrapped. The zero value is ready to use.
// The Lockers of one store share one LateReleases.
type LateReleases struct {
	mu       sync.Mutex
	released map[string][]driver.Lease
}

// lateReleases is how many releases of a name are sent again.
const lateReleases = 8

// Locker wraps a Locker.
func (r *LateReleases) Locker(l driver.Locker) driver.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		switch call.Method {
		case driver.MethodRelease:
			r.note(call.Lease)
		case driver.MethodReleaseBatch:
			r.note(call.Leases...)
		}
		a := next(ctx, call)
		if call.Method == driver.MethodTryAcquire && a.Err == nil {
			for _, again := range r.of(call.Request.Name) {
				next(ctx, driver.Call{Method: driver.MethodRelease, Lease: again})
			}
		}
		return a
	})
}

func (r *LateReleases) note(leases ...driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released == nil {
		r.released = map[string][]driver.Lease{}
	}
	for _, lease := range leases {
		of := append(r.released[lease.Name], lease)
		r.released[lease.Name] = of[max(0, len(of)-lateReleases):]
	}
}

func (r *LateReleases) of(name string) []driver.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.released[name])
}

// ids has the IDs that a clause sends instead of those that a Locker has released itself.
type ids struct {
	mu      sync.Mutex
	instead map[driver.LeaseID]driver.LeaseID
}

// of returns the ID to send for one of a clause.
func (s *ids) of(id driver.LeaseID) driver.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.instead[id]; ok {
		return other
	}
	return id
}

// note notes the outcome of a request with an ID of a clause.
func (s *ids) note(id driver.LeaseID, err error) {
	if !errors.Is(err, driver.ErrIDReleased) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instead == nil {
		s.instead = map[driver.LeaseID]driver.LeaseID{}
	}
	s.instead[id] = newID()
}

var lateClauses = []clause{
	{
		name: "release/late and doubled",
		says: "A release can be sent twice and take effect late, even after Release has returned. It never touches another's lease.",
		run: func(c *check) {
			name := c.name()
			var gone []driver.Lease
			for range 4 {
				holder := c.acquire(c.a, c.request(name))
				refused := c.request(name)
				c.held(c.b, refused)
				gone = append(gone, driver.Lease{Name: name, ID: refused.ID, Owner: refused.Owner, TTL: refused.TTL})
				c.parallel(2*len(gone), func(i int, l driver.Locker) { c.release(l, gone[i/2]) })
				c.stillHeldBy("after late releases of requests that were refused, and of earlier holders", holder)
				c.release(c.a, holder)
				gone = append(gone, holder)
			}
		},
	},
	{
		name: "acquire/after refusals", waits: true,
		says: "After an error that matches ErrIDReleased the caller uses another ID. Otherwise a refused ID can be sent again.",
		run: func(c *check) {
			name := c.name()
			for range 3 {
				req := c.brief(name)
				sent := c.now()
				c.acquire(c.a, req)
				next := c.takeOver(c.b, c.request(name), sent.Add(req.TTL), c.now().Add(req.TTL))
				c.stillHeldBy("after refusals with the same request", next)
				c.release(c.b, next)
			}
		},
	},
}
