package describe

import (
	"fmt"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// presentHolders says how many share the lock.
func (x *Explanation) presentHolders() []string {
	n := len(x.Holders)
	latest := lockview.Latest(x.Record)
	said := []string{fmt.Sprintf("%s is held by 1 holder that shares it.", format.Text(x.Name))}
	if n > 1 {
		said = []string{fmt.Sprintf("%s is shared by %d holders. The latest is %s, token %s.", format.Text(x.Name), n, Owner(latest),
			Token(latest))}
	}
	if x.Info.Failover == driver.GrantsMayBeForgotten {
		said = append(said, "This backend may forget a grant when a server crashes, so another may believe to hold it alone.")
	}
	return said
}

// holders describes those who share the lock.
func (x *Explanation) holders() (all []string) {
	for _, h := range x.Holders[:min(len(x.Holders), MostHolders)] {
		one := &Explanation{Lock: Lock{Record: lockview.OfHolder(x.Record, h)}, Info: x.Info}
		text := HolderLine(one.Record) + " unless renewed"
		switch {
		case h.Broken:
			text += "; broken: the backend refuses its renewals"
		case one.late():
			text += "; a renewal is overdue, so it may be dead, paused or cut off from the backend"
		}
		all = append(all, text+".")
	}
	if more := len(x.Holders) - MostHolders; more > 0 {
		all = append(all, fmt.Sprintf("%d more are in the list of holdfast status with --json.", more))
	}
	return all
}

// wayOutOfHolders says what would free a shared lock.
func (x *Explanation) wayOutOfHolders() (said []string, command string) {
	last := "It becomes free when each of its holders has released it, or its lease has ended"
	if x.RemainingKnown {
		last += ": in " + format.Duration(x.Remaining) + x.when() + ", unless one of them renews"
	}
	said = []string{last + ".", "Others may share it at once, unless somebody waits who wants it alone."}
	if x.Can.Breaker == nil {
		return said, ""
	}
	said = append(said, "This takes it from one of them"+x.sameBackend()+":")
	return said, x.command("break") + " " + format.NameAndFlags(x.Name, TargetFlag(lockview.Latest(x.Record)))
}
