package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// An unknown value is null in JSON and "unknown" in text, never zero.
func TestUnknownIsNeverZero(t *testing.T) {
	var out bytes.Buffer
	record := holdfast.Record{Name: "x", State: driver.StateHeld}
	if err := writeJSON(&out, lockToJSON(record)); err != nil {
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
	if got, want := describeHolder(record), "an unknown owner"; got != want {
		t.Errorf("holder: %q, want %q", got, want)
	}

	// A remaining time of zero is not the same as an unknown one.
	record.RemainingKnown = true
	if got := lockToJSON(record).RemainingMs; got == nil || *got != 0 {
		t.Errorf("remaining: %v, want 0", got)
	}
}
