package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// MultiHold is one hold over the locks of several names. Its members are ordinary holds, each with a lease and a
// token of its own. They share one context, which ends when the first of them does.
//
// While the locks are acquired one after another, the end of a member ends only that member. Once complete has
// succeeded, it ends them all.
type MultiHold struct {
	multiContext
	handle
	client  *Client
	names   []string
	managed bool          // DoAll releases it
	lost    chan struct{} // has a value after a member has ended, until it is complete; its capacity is 1

	mu       sync.Mutex
	finished bool    // it is complete: the members no longer change
	members  []*Hold // in the order of names, once it is complete
}

// multiContext is the context of a MultiHold. Contexts of its members descend from it.
type multiContext struct {
	context.Context
	cancel context.CancelCauseFunc
	hook   telemetry.Hook
	chain  atomic.Pointer[holdContext] // of all members; nil until it is complete
}

// Value returns the hold's chain for holdKey, so that a wait for one of the names within it fails at once.
func (m *multiContext) Value(key any) any {
	switch key {
	case holdKey{}:
		if in := m.chain.Load(); in != nil {
			return in
		}
	case telemetry.ContextKey{}:
		return m.hook
	}
	return m.Context.Value(key)
}

// String shows no more than the names of the locks.
func (m *multiContext) String() string {
	if in := m.chain.Load(); in != nil {
		return "context of the " + in.multi.String()
	}
	return "context of a hold"
}

// newMultiHold makes a MultiHold without members. Its context descends from parent.
func (c *Client) newMultiHold(parent context.Context, names []string, managed bool) *MultiHold {
	ctx, cancel := context.WithCancelCause(parent)
	return &MultiHold{multiContext: multiContext{Context: ctx, cancel: cancel, hook: c.hook},
		client: c, names: names, managed: managed, lost: make(chan struct{}, 1)}
}

// complete makes the holds one. It returns an error if one of them has ended meanwhile, also if only the clock says so.
func (m *MultiHold) complete(members []*Hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range members {
		if why := h.ended.Load(); why != nil { // cancel sets it before it calls memberEnded
			return ofMember(h, *why)
		}
		if err := h.LeaseErr(); err != nil {
			return ofMember(h, err)
		}
	}
	m.members = slices.Clone(members)
	slices.SortFunc(m.members, func(a, b *Hold) int { return strings.Compare(a.Name(), b.Name()) })
	in := holdContextFrom(m.multiContext.Context)
	for _, h := range m.members {
		in = &holdContext{h.parent, h, in, nil}
	}
	in.multi = m
	m.chain.Store(in)
	m.finished = true
	return nil
}

// memberEnded ends the context for the cause that ended a member's.
func (m *MultiHold) memberEnded(h *Hold, why error) {
	m.mu.Lock()
	finished := m.finished
	m.mu.Unlock()
	if !finished {
		notify(m.lost)
		return
	}
	if !errors.Is(why, cause.ErrReleased) && !errors.Is(why, cause.ErrShutdown) {
		why = ofMember(h, why)
	}
	m.cancel(why)
}

// ofMember adds the lock's name to the reason for which a member has ended.
func ofMember(h *Hold, err error) error { return driver.Errorf("lock %q: %w", h.Name(), err) }

// MultiHoldFrom returns the innermost MultiHold whose context ctx descends from, and false if there is none.
func MultiHoldFrom(ctx context.Context) (*MultiHold, bool) {
	for in := holdContextFrom(ctx); in != nil; in = in.outer {
		if in.multi != nil {
			return in.multi, true
		}
	}
	return nil, false
}

// OwnedByFunction reports whether DoAll releases the hold.
func (m *MultiHold) OwnedByFunction() bool { return m.managed }

// Context returns the context that ends with the first loss.
func (m *MultiHold) Context() context.Context { return &m.multiContext }

// Names returns the names in order.
func (m *MultiHold) Names() []string { return slices.Clone(m.names) }

// Hold returns the hold of one name; nil if it is not among them.
func (m *MultiHold) Hold(name string) *Hold {
	if i, ok := slices.BinarySearch(m.names, name); ok {
		return m.members[i]
	}
	return nil
}

// Tokens returns the fencing token of each name.
func (m *MultiHold) Tokens() map[string]uint64 {
	tokens := make(map[string]uint64, len(m.members))
	for _, h := range m.members {
		tokens[h.Name()] = h.Token()
	}
	return tokens
}

// Err returns nil while all locks are held, and afterwards why they are not. It reads the clock itself.
func (m *MultiHold) Err() error {
	if err := context.Cause(&m.multiContext); err != nil {
		return err
	}
	return m.LeaseErr()
}

// LeaseErr returns nil while all leases are renewed in time, also when the context has ended for another reason.
func (m *MultiHold) LeaseErr() error {
	for _, h := range m.members {
		if err := h.LeaseErr(); err != nil {
			return ofMember(h, err)
		}
	}
	return nil
}

// LostIn returns the time until the first lock is lost unless it is renewed.
func (m *MultiHold) LostIn() time.Duration { return m.least((*Hold).LostIn) }

// ExpiresIn returns the time until another may be granted one of the locks, unless it is renewed or released before.
func (m *MultiHold) ExpiresIn() time.Duration { return m.least((*Hold).ExpiresIn) }

func (m *MultiHold) least(of func(*Hold) time.Duration) time.Duration {
	least := of(m.members[0])
	for _, h := range m.members[1:] {
		least = min(least, of(h))
	}
	return least
}

// String describes the hold without the IDs of its leases.
func (m *MultiHold) String() string {
	return "hold of " + (&Failures{Names: slices.Clone(m.names)}).List()
}

// GoString keeps the IDs out of %#v.
func (m *MultiHold) GoString() string { return "holdfast.MultiHold(" + m.String() + ")" }

// verdict returns the result of the hold's function: the function's own error, joined with that of the first lease
// that was lost before the function returned.
func (m *MultiHold) verdict(err error) error {
	for _, h := range m.members {
		if gone := h.LeaseErr(); gone != nil {
			if errors.Is(err, gone) {
				return err
			}
			if gone = ofMember(h, gone); err == nil {
				return gone
			}
			return fmt.Errorf("%w; %w", err, gone)
		}
	}
	return err
}
