package memory

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

// record is what the store keeps of a name. It stays after a release, so that
// the token and the data survive.
type record struct {
	id         string // of the lease; empty after a release
	owner      string
	token      uint64
	ttl        time.Duration // the longest that this holder asked for
	expires    time.Time
	acquired   time.Time
	renewed    time.Time
	broken     bool
	data       []byte
	lastChange uint64
}

func (r *record) held(now time.Time) bool {
	return r != nil && r.id != "" && now.Before(r.expires)
}

func (r *record) revision() holdfast.Revision {
	return holdfast.NewRevision(strconv.FormatUint(r.lastChange, 10))
}

func (r *record) describe(name string, now time.Time) holdfast.Record {
	if r == nil {
		return holdfast.Record{Name: name, State: holdfast.StateFree}
	}
	out := holdfast.Record{
		Name: name, State: holdfast.StateFree,
		Owner: r.owner, Token: r.token, Data: bytes.Clone(r.data),
		AcquiredAt: r.acquired, RenewedAt: r.renewed,
	}
	if r.held(now) {
		out.State = holdfast.StateHeld
		out.TTL = r.ttl
		out.Remaining, out.RemainingKnown = r.expires.Sub(now), true
		out.Broken = r.broken
		out.Revision = r.revision()
	}
	return out
}

// TryAcquire implements [holdfast.Locker].
func (l *Locker) TryAcquire(ctx context.Context, req holdfast.Request) (holdfast.Lease, error) {
	var lease holdfast.Lease
	err := l.do(ctx, "acquire", req.Name, req.Validate(limits), func(s *Store) error {
		now := s.now()
		r := s.records[req.Name]
		switch {
		case !r.held(now), !req.Replace.IsZero() && req.Replace == r.revision() && req.ID != r.id:
			r = s.grant(req, now)
		case req.ID == r.id && !r.broken:
			s.extend(r, req.TTL, now)
		default:
			return &holdfast.HeldError{Record: r.describe(req.Name, now)}
		}
		lease = holdfast.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: r.token, TTL: req.TTL}
		return nil
	})
	return lease, err
}

// grant gives the lock to req. The token outgrows the last one, and also one
// that was forgotten with a removed record, once the clock has passed it.
func (s *Store) grant(req holdfast.Request, now time.Time) *record {
	r := s.records[req.Name]
	if r == nil {
		r = &record{}
		s.records[req.Name] = r
	}
	r.id, r.owner, r.acquired = req.ID, req.Owner, now
	r.token = max(r.token+1, uint64(max(now.UnixMilli(), 0)))
	r.ttl, r.expires, r.broken = 0, now, false
	if req.Data != nil {
		r.data = bytes.Clone(req.Data)
	}
	s.extend(r, req.TTL, now)
	return r
}

// extend renews a lease and never shortens it. The recorded TTL does not shrink
// either: a waiter that watches a revision for one TTL must not replace a lease
// that a longer request still covers.
func (s *Store) extend(r *record, ttl time.Duration, now time.Time) {
	if until := now.Add(ttl); until.After(r.expires) {
		r.expires = until
	}
	r.ttl = max(r.ttl, ttl)
	r.renewed = now
	s.changes++
	r.lastChange = s.changes
}

// Renew implements [holdfast.Locker].
func (l *Locker) Renew(ctx context.Context, lease holdfast.Lease) error {
	invalid := holdfast.ValidateName(lease.Name, limits)
	if invalid == nil {
		invalid = holdfast.ValidateTTL(lease.TTL, limits)
	}
	return l.do(ctx, "renew", lease.Name, invalid, func(s *Store) error {
		r := s.records[lease.Name]
		if !r.belongsTo(lease) || r.broken {
			return holdfast.ErrLost
		}
		s.extend(r, lease.TTL, s.now())
		return nil
	})
}

// belongsTo also holds for an expired lease that nobody took since.
func (r *record) belongsTo(lease holdfast.Lease) bool {
	return r != nil && r.id != "" && r.id == lease.ID
}

// Release implements [holdfast.Locker].
func (l *Locker) Release(ctx context.Context, lease holdfast.Lease) error {
	return l.do(ctx, "release", lease.Name, holdfast.ValidateName(lease.Name, limits), func(s *Store) error {
		if r := s.records[lease.Name]; r.belongsTo(lease) {
			s.free(lease.Name, r)
		}
		return nil
	})
}

func (s *Store) free(name string, r *record) {
	r.id, r.broken = "", false
	s.wake(name)
}

// Inspect implements [holdfast.Locker].
func (l *Locker) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	var out holdfast.Record
	err := l.do(ctx, "inspect", name, holdfast.ValidateName(name, limits), func(s *Store) error {
		out = s.records[name].describe(name, s.now())
		return nil
	})
	return out, err
}
