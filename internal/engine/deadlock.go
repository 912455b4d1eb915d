package engine

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// heldWithin returns a renewed hold that ctx descends from, if such holds have all slots of the
// lock, and else nil. A caller with that ctx would deadlock if it waited for them.
func (c *Client) heldWithin(ctx context.Context, name string, slots int) *Hold {
	own := map[int]*Hold{}
	for in := holdContextFrom(ctx); in != nil; in = in.outer {
		if slot, ok := slotOf(name, in.hold.Name(), slots); ok && in.hold.client == c && in.hold.keepsLock() {
			if own[slot] = in.hold; len(own) == slots {
				return in.hold
			}
		}
	}
	return nil
}

// keepsLock reports whether the lease is renewed and its release has not begun. The context may have ended already.
func (h *Hold) keepsLock() bool { return h.LeaseErr() == nil && h.release.Load() == nil }

// errSelfDeadlock is the error of a caller within a hold that it would wait for.
func errSelfDeadlock(name string, h *Hold) error {
	return driver.Errorf("lock %q: the caller itself holds it and would deadlock: %w", name, h.heldError())
}
