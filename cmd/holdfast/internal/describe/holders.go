package describe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// MostHolders is how many holders of a shared lock are shown to people.
const MostHolders = 10

// holderFacts are the lines about those who share a lock.
func holderFacts(r holdfast.Record) []Fact {
	facts := []Fact{{"shared by", strconv.Itoa(len(r.Holders))}}
	for _, h := range r.Holders[:min(len(r.Holders), MostHolders)] {
		text := HolderLine(lockview.OfHolder(r, h))
		if h.Broken {
			text += ", broken"
		}
		facts = append(facts, Fact{"holder", text})
	}
	if more := len(r.Holders) - MostHolders; more > 0 {
		facts = append(facts, Fact{"", fmt.Sprintf("and %d more; see --json of holdfast status", more)})
	}
	return facts
}

// HolderLine describes one of those who share a lock.
func HolderLine(r holdfast.Record) string {
	return fmt.Sprintf("%s, token %s, %s left", Owner(r), Token(r), Left(r))
}

// Holder describes the holder of a lock: owner, token, time left. Of several it describes the latest.
func Holder(r holdfast.Record) string {
	if n := len(r.Holders); n > 0 {
		text := Holder(lockview.Latest(r))
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

// BreakTarget is the holder of a record: that with its token, or the one whose token the backend does not know.
func BreakTarget(r holdfast.Record) driver.BreakTarget {
	if r.Token == 0 {
		return driver.BreakUnknown()
	}
	return driver.BreakToken(r.Token)
}

// TargetFlag is the flag of "holdfast break" that names the holder of a record.
func TargetFlag(r holdfast.Record) string {
	if r.Token == 0 {
		return "--unknown"
	}
	return "--token " + strconv.FormatUint(r.Token, 10)
}
