package main

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
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
	}
	return strings.Replace(err.Error(), invalid.Error(), own.Error(), 1)
}

// tooMuchGrace is an error of the library about the time between renewals, which has no flag,
// in terms of what leaves too little of it. Two fifths of the TTL leave enough with every TTL.
func (r *runCmd) tooMuchGrace(err error) error {
	var invalid *holdfast.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "RenewEvery" {
		return err
	}
	rule := "at most two fifths of the TTL"
	if r.TTL > 0 {
		rule = "at most " + text.Duration(r.TTL*2/5) + ", two fifths of --ttl " + text.Duration(r.TTL)
	}
	return driver.Invalid("Grace", text.Duration(r.Grace), rule)
}
