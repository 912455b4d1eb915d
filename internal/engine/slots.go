package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// slotName is the name of a slot's record.
func slotName(name string, slot int) string {
	if slot == 0 {
		return name
	}
	return name + "#" + strconv.Itoa(slot+1)
}

// lockOf is the name of the lock that a slot's record is of.
func lockOf(record string, slot int) string {
	return record[:len(record)-len(slotName("", slot))]
}

// slotOf finds the slot of a lock that a record is of, among its first n.
func slotOf(name, record string, n int) (slot int, is bool) {
	suffix, found := strings.CutPrefix(record, name)
	if !found || suffix == "" {
		return 0, found
	}
	number, err := strconv.Atoi(strings.TrimPrefix(suffix, "#"))
	return number - 1, err == nil && number > 1 && number <= n && slotName(name, number-1) == record
}

// validateSlots checks that the names of all slots are allowed.
func ValidateSlots(name string, n int, l driver.Limits) error {
	if err := driver.ValidateName(name, l); err != nil {
		return err
	}
	if last := slotName(name, n-1); l.MaxName > 0 && len(last) > l.MaxName {
		rule := fmt.Sprintf("%s, so that %q fits behind it for the last of %d slots", text.ByteRange(1, l.MaxName-(len(last)-len(name))), last[len(name):], n)
		return driver.Invalid("Name", text.Quote(name), rule)
	}
	return nil
}

// allHeld says that all slots are held, as one of them is.
func allHeld(name string, slots int, one error) error {
	if slots == 1 {
		return one
	}
	return fmt.Errorf("holdfast: lock %q: all %d slots are held, one of them: %w", name, slots, one)
}

// heldWithin returns a live hold that ctx descends from, if such holds have all slots of
// the lock. Waiting for them would be waiting for oneself: ctx ends with them.
func (c *Client) heldWithin(ctx context.Context, name string, slots int) *Hold {
	own := map[int]*Hold{}
	for in := holdingFrom(ctx); in != nil; in = in.outer {
		if slot, is := slotOf(name, in.hold.Name(), slots); is && in.hold.client == c && in.hold.Err() == nil {
			if own[slot] = in.hold; len(own) == slots {
				return in.hold
			}
		}
	}
	return nil
}

// holderOf returns the record of the first slot that is held, or else of the first slot.
func (c *Client) HolderOf(ctx context.Context, name string, s settings.Settings) (first driver.Record, err error) {
	names := make([]string, s.Slots)
	for slot := range names {
		names[slot] = slotName(name, slot)
	}
	inspect := func(slot int) (driver.Record, error) { return c.Inspect(ctx, names[slot]) }
	if inspector := c.capabilities.BatchInspector; inspector != nil && s.Slots > 1 {
		limited, cancel := context.WithTimeout(ctx, s.RequestTimeout)
		defer cancel()
		records, errs := batchread.Inspect(limited, inspector, names)
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
