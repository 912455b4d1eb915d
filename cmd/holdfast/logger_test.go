package main

import (
	"bytes"
	"testing"
)

func TestLibraryPrefixIsNotRepeated(t *testing.T) {
	for in, want := range map[string]string{
		`holdfast: connect to mongodb: EOF`:                                 `connect to mongodb: EOF`,
		`cannot open: holdfast: connect to mongodb: EOF`:                    `cannot open: connect to mongodb: EOF`,
		`waiting ended; holdfast: acquire "job" on file: EOF`:               `waiting ended; acquire "job" on file: EOF`,
		`lost "job" (holdfast: lease lost)`:                                 `lost "job" (lease lost)`,
		`waiting for "holdfast: x": held by "a: b"`:                         `waiting for "holdfast: x": held by "a: b"`,
		`acquired "job" with holdfast, which is not a prefix: 50% holdfast`: `acquired "job" with holdfast, which is not a prefix: 50% holdfast`,
	} {
		var out bytes.Buffer
		newLogger(&out, false, false).errorf("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%s\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}

// Text from a backend cannot control the terminal or add a line.
func TestMessagesAreOneSafeLine(t *testing.T) {
	for in, want := range map[string]string{
		"a \x1b[2J\x1b]0;title\x07 b":         `a \x1b[2J\x1b]0;title\a b`,
		"one\ntwo\r\n":                        `one; two`,
		"first\nholdfast: acquired \"job\"\n": `first; acquired "job"`,
		"grüße, \u202egnol":                   `grüße, \u202egnol`,
		"\u009b31m":                           `\u009b31m`,
		"no utf-8: \xff.":                     "no utf-8: \ufffd.",
		`"quoted" 'text' \path`:               `"quoted" 'text' \path`,
	} {
		var out bytes.Buffer
		newLogger(&out, false, false).errorf("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%q\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}
