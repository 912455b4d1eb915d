package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// quoteUnsafe returns text from a backend as it is if it is safe to show, and quoted
// otherwise: text in a lock's record must not control the terminal of its reader.
func quoteUnsafe(s string) string {
	for _, r := range s {
		if r == unicode.ReplacementChar || r == '"' || r == ' ' || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// roundedDuration formats a duration with the precision that a person needs.
func roundedDuration(d time.Duration) string {
	switch {
	case d < 10*time.Second && d > -10*time.Second:
		d = d.Round(10 * time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return driver.FormatDuration(d)
}

// shortDuration formats the difference of clocks.
func shortDuration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return roundedDuration(d)
	}
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
		facts = append(facts, roundedDuration(r.Remaining)+" left unless renewed")
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

// shellWord returns a word of a POSIX shell's command line. A name that cannot be shown is NAME.
func shellWord(s string) string {
	plain := true
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return "NAME"
		}
		plain = plain && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
