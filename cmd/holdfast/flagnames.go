package main

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// flagNames maps the names of the library's options to those of the command's flags.
var flagNames = map[string]string{
	"TTL": "--ttl", "Grace": "--grace", "Slots": "--slots", "Mode": "--shared", "Owner": "--owner", "Name": "the lock's name",
}

// withFlagNames returns the text of an error with flags instead of the library's options.
func withFlagNames(err error) string {
	var invalid *holdfast.InvalidError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	renamed := *invalid
	parameter, ofURL := strings.CutPrefix(invalid.Field, "URL")
	switch name := flagNames[invalid.Field]; {
	case name != "":
		renamed.Field = name
	case ofURL:
		renamed.Field = "the backend's URL" + parameter
	}
	return strings.Replace(err.Error(), driver.ErrorText(invalid), driver.ErrorText(&renamed), 1)
}

// asGraceError turns an error about the time between renewals, for which there is no flag,
// into one about --grace. A grace of at most two fifths of the TTL leaves enough time
// between renewals, whatever the TTL.
func (r *runCmd) asGraceError(err error) error {
	var invalid *holdfast.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "RenewEvery" {
		return err
	}
	rule := "at most two fifths of the TTL"
	if r.TTL > 0 {
		rule = "at most " + driver.FormatDuration(r.TTL*2/5) + ", two fifths of --ttl " + driver.FormatDuration(r.TTL)
	}
	return driver.Invalid("Grace", driver.FormatDuration(r.Grace), rule)
}
