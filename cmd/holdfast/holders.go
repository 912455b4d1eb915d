package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
)

// mostHolders is how many holders of a shared lock are shown to people.
const mostHolders = 10

// ofHolder is the record of a shared lock as that of one of its holders.
func ofHolder(r holdfast.Record, h driver.Holder) holdfast.Record {
	return holdfast.Record{Name: r.Name, State: r.State, Owner: h.Owner, Token: h.Token, TTL: h.TTL, Remaining: h.Remaining,
		RemainingKnown: h.RemainingKnown, AcquiredAt: h.AcquiredAt, RenewedAt: h.RenewedAt, Broken: h.Broken, ReadAt: r.ReadAt}
}

// holderFacts are the lines about those who share a lock.
func holderFacts(r holdfast.Record) []lockFact {
	facts := []lockFact{{"shared by", strconv.Itoa(len(r.Holders))}}
	for _, h := range r.Holders[:min(len(r.Holders), mostHolders)] {
		text := holderText(ofHolder(r, h))
		if h.Broken {
			text += ", broken"
		}
		facts = append(facts, lockFact{"holder", text})
	}
	if more := len(r.Holders) - mostHolders; more > 0 {
		facts = append(facts, lockFact{"", fmt.Sprintf("and %d more; see --json of holdfast status", more)})
	}
	return facts
}

func holderText(r holdfast.Record) string {
	return fmt.Sprintf("%s, token %s, %s left", ownerText(r), tokenText(r), leftText(r))
}

// presentHolders says how many share the lock.
func (x *explanation) presentHolders() []string {
	n := len(x.Holders)
	latest := ofHolder(x.Record, x.Holders[n-1])
	said := []string{fmt.Sprintf("%s is held by 1 holder that shares it.", format.Text(x.Name))}
	if n > 1 {
		said = []string{fmt.Sprintf("%s is shared by %d holders. The latest is %s, token %s.", format.Text(x.Name), n, ownerText(latest),
			tokenText(latest))}
	}
	if x.info.Failover == driver.GrantsMayBeForgotten {
		said = append(said, "This backend may forget a grant when a server crashes, so another may believe to hold it alone.")
	}
	return said
}

// holders describes those who share the lock.
func (x *explanation) holders() (all []string) {
	for _, h := range x.Holders[:min(len(x.Holders), mostHolders)] {
		one := &explanation{Record: ofHolder(x.Record, h), info: x.info}
		text := holderText(one.Record) + " unless renewed"
		switch {
		case h.Broken:
			text += "; broken: the backend refuses its renewals"
		case one.late():
			text += "; a renewal is overdue, so it may be dead, paused or cut off from the backend"
		}
		all = append(all, text+".")
	}
	if more := len(x.Holders) - mostHolders; more > 0 {
		all = append(all, fmt.Sprintf("%d more are in the list of holdfast status with --json.", more))
	}
	return all
}

// wayOutOfHolders says what would free a shared lock.
func (x *explanation) wayOutOfHolders() (said []string, command string) {
	last := "It becomes free when each of its holders has released it, or its lease has ended"
	if x.RemainingKnown {
		last += ": in " + format.Duration(x.Remaining) + x.when() + ", unless one of them renews"
	}
	said = []string{last + ".", "Others may share it at once, unless somebody waits who wants it alone."}
	if x.can.Breaker == nil {
		return said, ""
	}
	latest := x.Holders[len(x.Holders)-1]
	said = append(said, "This takes it from one of them"+x.sameBackend()+":")
	return said, x.command("break") + fmt.Sprintf(" %s --token %d", format.ShellWord(x.Name), latest.Token)
}

// describeHolder describes the holder of a lock: owner, token, time left. Of several it describes the latest.
func describeHolder(r holdfast.Record) string {
	if n := len(r.Holders); n > 0 {
		text := describeHolder(ofHolder(r, r.Holders[n-1]))
		if n > 1 {
			text += fmt.Sprintf(" and %d more", n-1)
		}
		return text
	}
	owner := "an unknown owner"
	if r.Owner != "" {
		owner = strconv.Quote(r.Owner)
	}
	var facts []string
	if r.Token != 0 {
		facts = append(facts, "token "+strconv.FormatUint(r.Token, 10))
	}
	switch {
	case r.Endless:
		facts = append(facts, "its lease never ends")
	case r.RemainingKnown:
		facts = append(facts, format.Duration(r.Remaining)+" left unless renewed")
	}
	if len(facts) == 0 {
		return owner
	}
	return owner + " (" + strings.Join(facts, ", ") + ")"
}

// breakTarget is the holder of a record: that with its token, or the one whose token the backend does not know.
func breakTarget(r holdfast.Record) driver.BreakTarget {
	if r.Token == 0 {
		return driver.BreakUnknown()
	}
	return driver.BreakToken(r.Token)
}

// targetFlag is the flag of "holdfast break" that names the holder of a record.
func targetFlag(r holdfast.Record) string {
	if r.Token == 0 {
		return "--unknown"
	}
	return "--token " + strconv.FormatUint(r.Token, 10)
}
