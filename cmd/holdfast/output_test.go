package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func TestUnknownIsNeverZero(t *testing.T) {
	var out bytes.Buffer
	record := holdfast.Record{Name: "x", State: driver.StateHeld}
	if err := writeJSON(&out, toJSON(record)); err != nil {
		t.Fatal(err)
	}
	want := `{"name":"x","state":"held","owner":null,"token":null,"ttlMs":null,"remainingMs":null,"acquiredAt":null,"renewedAt":null,"broken":false,"data":null}` + "\n"
	if out.String() != want {
		t.Errorf("JSON:\n%swant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := writeStatus(&out, "file:/locks", record); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "unknown"); got != 5 {
		t.Errorf("status says unknown %d times, not 5:\n%s", got, out.String())
	}
	if got, want := holderOf(record), "an owner that the backend does not name"; got != want {
		t.Errorf("holder: %q, want %q", got, want)
	}

	// Nothing left is not the same as not known.
	record.RemainingKnown = true
	if got := toJSON(record).RemainingMs; got == nil || *got != 0 {
		t.Errorf("remaining: %v, want 0", got)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"web-3/411": "web-3/411",
		"grüße":     "grüße",
		"":          `""`,
		"a b":       `"a b"`,
		`"`:         `"\""`,
		"\x1b[2J":   `"\x1b[2J"`,
		"a\nb":      `"a\nb"`,
		"\xff":      `"\xff"`,
		"\u202eabc": `"\u202eabc"`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestLastingFailureIsToldAtGrowingIntervals(t *testing.T) {
	var out bytes.Buffer
	n := &news{say: newReporter(&out, true, false)}
	start := time.Now()
	event := holdfast.Event{Type: holdfast.EventError, Name: "job", Op: "renew", Err: errors.New("no route to host")}
	for s := range 600 { // ten minutes, one failure a second
		n.failure(event, start.Add(time.Duration(s)*time.Second))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 10 || len(lines) > 16 { // after 0, 2, 6, 14, 30, 62 s, then every minute
		t.Errorf("told %d times:\n%s", len(lines), out.String())
	}
	if want := `holdfast: cannot renew "job"; trying again: no route to host`; lines[0] != want {
		t.Errorf("first: %s\nwant:  %s", lines[0], want)
	}
	if want := "(3 times in 2s)"; !strings.HasSuffix(lines[1], want) {
		t.Errorf("second: %s, want … %s", lines[1], want)
	}

	// Another failure is told at once, and so is this one after a time of rest.
	out.Reset()
	event.Op = "release"
	n.failure(event, start.Add(600*time.Second))
	n.failure(event, start.Add(time.Hour))
	if got := strings.Count(out.String(), "cannot release"); got != 2 {
		t.Errorf("told %d times, not 2:\n%s", got, out.String())
	}
}

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
		newReporter(&out, false, false).error("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%s\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}

func TestWithoutSecret(t *testing.T) {
	for _, arg := range []string{
		"mongodb://u:sEcReT@h/db", "mongodb+srv://u:sEc sEcReT@h", "mongodb://u:p/sEcReT@h?x=1", "azblob://a/c?sig=sEcReT", "MONGODB://sEcReT@h",
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=sEcReT==", "--password=sEcReT", "mongodb://u@h/?x=sEcReT",
		"mongodb://h/app?tlsCertificateKeyFile=/c.pem&tlsCertificateKeyFilePassword=sEcReT", "mongodb://h/app?proxyHost=x&proxyPassword=sEcReT",
		"mongodb://h/app?authMechanismProperties=AWS_SESSION_TOKEN:sEcReT", "mongodb://h/app?authMechanismProperties=aws_session_token%3AsEcReT",
	} {
		if got := withoutSecret("unexpected argument " + arg + ", sorry"); strings.Contains(got, "sEcReT") || !strings.HasPrefix(got, "unexpected argument") {
			t.Errorf("%s: %s", arg, got)
		}
		if checkName(arg) == nil {
			t.Errorf("%s is let through as a name", arg)
		}
	}
	for _, arg := range []string{"job", "https://example.com/job", "team/job@host", "job:nightly@host", "a=b"} {
		if got := withoutSecret(arg); got != arg {
			t.Errorf("%s: %s", arg, got)
		}
		if err := checkName(arg); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// What comes from a backend, or from whoever may write there, cannot control a terminal.
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
		newReporter(&out, false, false).error("%s", in)
		if got := out.String(); got != "holdfast: "+want+"\n" {
			t.Errorf("%q\ngot  %swant holdfast: %s", in, got, want)
		}
	}
}

func TestErrorsNameFlags(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{driver.Invalid("Grace", "40s", "less than the TTL of 30s"), "--grace 40s is invalid: must be less than the TTL of 30s"},
		{driver.Invalid("Owner", `"x"`, "short"), `--owner "x" is invalid: must be short`},
		{driver.Invalid("URL", "without a database", "with one"), "the backend's URL without a database is invalid: must be with one"},
		{driver.Invalid("URL parameter retention", "1m", "more"), "the backend's URL parameter retention 1m is invalid: must be more"},
		{fmt.Errorf("holdfast: lock: %w", driver.Invalid("TTL", "1s", "more")), "holdfast: lock: --ttl 1s is invalid: must be more"},
		{errors.New("Grace"), "Grace"},
	} {
		if got := inFlags(tc.err); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}
