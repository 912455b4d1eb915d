package describe

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// NotBroken is the error if another holder has the lock by now.
func NotBroken(r holdfast.Record) error {
	return fmt.Errorf("%q was not broken: it is now held by %s", r.Name, Holder(r))
}

// BreakEffect says what will happen if the lock is broken.
func BreakEffect(r holdfast.Record, now bool) string {
	if now {
		return "THE LOCK BECOMES FREE AT ONCE. The holder does not learn of it before its next renewal.\n" +
			"Until then it and the next holder may both be at work."
	}
	if r.Endless {
		return "THE LOCK BECOMES FREE AT ONCE, because its lease never ends. Its holder is not notified:\n" +
			"it and the next holder may both be at work."
	}
	return "Its renewals will be refused from now on. It stops its work when it notices, at its next renewal.\n" +
		"Others can acquire the lock " + FreeBy(r) + "."
}

// Broke says what has happened.
func Broke(r holdfast.Record, now bool) string {
	if now || r.Endless {
		return fmt.Sprintf("broke %q: it is free. Its holder was %s, token %s", r.Name, Owner(r), Token(r))
	}
	return fmt.Sprintf("broke %q: it becomes free %s. Its holder is %s, token %s", r.Name, FreeBy(r), Owner(r), Token(r))
}

// FreeBy says when a lock becomes free that is broken, or is broken now: until then its holder may renew it, whatever time is left.
func FreeBy(r holdfast.Record) string {
	switch {
	case r.Broken && r.RemainingKnown:
		return "in " + Left(r) + " at the latest"
	case r.TTL > 0:
		return "when its lease ends, within one TTL (" + driver.FormatDuration(r.TTL) + ")"
	}
	return "when its lease ends"
}
