package holdfast

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

// maxSlots bounds WithSlots: a waiter watches every slot.
const maxSlots = 1000

// WithSlots lets up to n holders have the lock at once, each in a slot of its own: a
// semaphore, or n leaders of a pool. n is from 1, the default, to 1,000.
//
// Each slot is a lock with a record, a lease and a rising fencing token of its own: the
// first is the name itself, the next are NAME#2, NAME#3, … up to NAME#n. [Hold.Slot] tells
// which it is, [Hold.Name] and events name its record. Tokens of different slots do not
// compare: what the lock protects has to compare those of each slot by itself.
//
// All who share a name should give the same n. n can be raised at any time. While some
// give 5 and others 3, up to 5 hold the lock, and those with 3 get the first three slots
// only. Waiters of one Client share one queue for the name, whatever their n: while the
// first one's slots are all this Client's own, it keeps those behind it waiting, even if
// their larger n would leave them a slot. Names of other locks must not end in "#2" and the like.
//
// Waiting costs little where the backend reads in batches and wakes waiters (MongoDB); on
// others (Azure Blob Storage) a waiter asks for each slot at the poll interval. TryLock
// tries each slot once at most; if all are held, the error has one of the holders.
//
// Do and Lock with the context of holds of all n slots would wait for themselves, and fail
// at once. LeaseManager and Partitions have one holder for each name and ignore WithSlots.
func WithSlots(n int) Option {
	return lockOption(func(c *lockConfig) { c.slots = &n })
}

// one is for who has one holder for each name, whatever the Client's default.
func (c lockConfig) one() lockConfig {
	c.slots = nil
	return c
}

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
func validateSlots(name string, n int, l driver.Limits) error {
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
func (c *Client) holderOf(ctx context.Context, name string, s settings) (first Record, err error) {
	names := make([]string, s.slots)
	for slot := range names {
		names[slot] = slotName(name, slot)
	}
	inspect := func(slot int) (Record, error) { return c.Inspect(ctx, names[slot]) }
	if inspector := c.capabilities.BatchInspector; inspector != nil && s.slots > 1 {
		limited, cancel := context.WithTimeout(ctx, s.tryTimeout)
		defer cancel()
		records, errs := readBatch(limited, inspector, names)
		inspect = func(slot int) (Record, error) { return records[slot], errs[slot] }
	}
	for slot := range names {
		r, err := inspect(slot)
		if err != nil || r.State == StateHeld {
			return r, err
		}
		if slot == 0 {
			first = r
		}
	}
	return first, nil
}
