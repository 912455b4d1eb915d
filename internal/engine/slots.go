package engine

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// slotMark stands in the names of slots, between the lock's name and the number.
const slotMark = "#"

// slotName is the name of the record of a slot.
func slotName(name string, slot int) string {
	if slot == 0 {
		return name
	}
	return name + slotMark + strconv.Itoa(slot+1)
}

// lockOf is the name of the lock whose slot has the record.
func lockOf(record string, slot int) string {
	return record[:len(record)-len(slotName("", slot))]
}

// slotOf returns which of a lock's first n slots has the record, and false if none has.
func slotOf(name, record string, n int) (slot int, ok bool) {
	suffix, found := strings.CutPrefix(record, name)
	if !found || suffix == "" {
		return 0, found
	}
	number, err := strconv.Atoi(strings.TrimPrefix(suffix, slotMark))
	return number - 1, err == nil && number > 1 && number <= n && slotName(name, number-1) == record
}

// ValidateSlots checks the names of the records of all slots against the limits. A name that another
// lock's slot would have is refused: the two would exclude each other.
func ValidateSlots(name string, n int, l driver.Limits) error {
	if err := driver.ValidateName(name, l); err != nil {
		return err
	}
	last := slotName(name, n-1)
	base, slot := slotIn(name)
	var rule string
	switch {
	case slot > 0:
		rule = fmt.Sprintf("a name without %s at its end: slot %d of the lock %s has that name", name[len(base):], slot+1, driver.Quote(base))
	case l.MaxName > 0 && len(last) > l.MaxName:
		rule = fmt.Sprintf("%s, so that %q fits behind it for the last of %d slots", driver.ByteRange(1, l.MaxName-(len(last)-len(name))),
			last[len(name):], n)
	default:
		return nil
	}
	return driver.Invalid("Name", driver.Quote(name), rule)
}

// slotIn returns the lock and the slot whose record would have the name of this lock, and slot 0 if there is none.
func slotIn(name string) (base string, slot int) {
	at := strings.LastIndex(name, slotMark)
	if at <= 0 {
		return name, 0
	}
	slot, ok := slotOf(name[:at], name, math.MaxInt)
	if !ok {
		return name, 0
	}
	return name[:at], slot
}

// allHeld returns the error that all slots are held. one is the error for one of them.
func allHeld(name string, slots int, one error) error {
	if slots == 1 {
		return one
	}
	return driver.Errorf("lock %q: all %d slots are held, one of them: %w", name, slots, one)
}

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

// HolderOf returns the record of the first slot that is held, and if none is, that of the first
// slot.
func (c *Client) HolderOf(ctx context.Context, name string, s settings.Settings) (first driver.Record, err error) {
	if err := cause.Check(ctx); err != nil {
		return driver.Record{}, err
	}
	names := make([]string, s.Slots)
	for slot := range names {
		names[slot] = slotName(name, slot)
	}
	inspect := func(slot int) (driver.Record, error) { return c.Inspect(ctx, names[slot]) }
	if inspector := c.capabilities.BatchInspector; inspector != nil && s.Slots > 1 {
		limited, cancel := context.WithTimeout(ctx, s.RequestTimeout)
		defer cancel()
		records, errs := batchread.Inspect(limited, inspector, c.lanes[driver.Exclusive].waiter, names)
		inspect = func(slot int) (driver.Record, error) { return records[slot], errs[slot] }
	}
	for slot := range names {
		r, err := inspect(slot)
		if err != nil || r.State == driver.StateHeld {
			return r, err
		}
		if slot == 0 {
			first = r
		}
	}
	return first, nil
}
