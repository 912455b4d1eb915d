package main

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// flagNames are what the command calls what the library names by its options.
var flagNames = map[string]string{
	"TTL": "--ttl", "Grace": "--grace", "Slots": "--slots", "Owner": "--owner", "Name": "the lock's name",
}

// inFlags is the text of an error, with the flags instead of the library's options.
func inFlags(err error) string {
	var invalid *holdfast.InvalidError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	own := *invalid
	rest, ofURL := strings.CutPrefix(invalid.Field, "URL")
	switch name := flagNames[invalid.Field]; {
	case name != "":
		own.Field = name
	case ofURL:
		own.Field = "the backend's URL" + rest
	case invalid.Field == "RenewEvery": // it has no flag: what leaves too little time is the grace
		own = holdfast.InvalidError{Field: "--grace", Value: "of so much of the TTL", Rule: "at most two fifths of it, so that a renewal fits before"}
	}
	return strings.Replace(err.Error(), invalid.Error(), own.Error(), 1)
}
