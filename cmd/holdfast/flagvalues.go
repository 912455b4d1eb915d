package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast/driver"
)

// parseString takes a text byte for byte. The parser's own way passes through JSON, which replaces the bytes of an
// argument that are not UTF-8: names would collide, and the job would get another argument.
func parseString(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(token.String())
	return nil
}

// parseNumber parses the value of every numeric flag.
func parseNumber(ctx *kong.DecodeContext, target reflect.Value) error {
	var value string
	if err := ctx.Scan.PopValueInto("number", &value); err != nil {
		return err
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", value)
	}
	target.SetInt(int64(n))
	return nil
}

// parseDuration parses the value of every duration flag. A flag with the tag "positive" must
// be more than 0: a zero that a script has miscomputed must not select the default.
func parseDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var value string
	if err := ctx.Scan.PopValueInto("duration", &value); err != nil {
		return err
	}
	d, err := time.ParseDuration(value)
	_, isNumber := strconv.ParseFloat(value, 64)
	switch {
	case err != nil && isNumber == nil:
		return fmt.Errorf("%s has no unit: write %ss, or another of ms, s, m and h", value, value)
	case err != nil:
		return fmt.Errorf("%q is not a duration: write it as 90s, 1m30s or 2h", value)
	case d < 0 || d == 0 && ctx.Value.Tag.Has("positive"):
		least := "more than 0"
		if d < 0 && !ctx.Value.Tag.Has("positive") {
			least = "0s or more"
		}
		return errors.New(driver.FormatDuration(d) + " is invalid: must be " + least)
	}
	target.Set(reflect.ValueOf(d))
	return nil
}
