package main

import (
	"fmt"
	"strconv"
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
	if r.Token == 0 && !r.RemainingKnown {
		return owner
	}
	facts := ""
	if r.Token != 0 {
		facts = "token " + strconv.FormatUint(r.Token, 10)
	}
	if r.RemainingKnown {
		if facts != "" {
			facts += ", "
		}
		facts += roundedDuration(r.Remaining) + " left unless renewed"
	}
	return owner + " (" + facts + ")"
}
