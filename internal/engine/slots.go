package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
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
