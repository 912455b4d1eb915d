package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
)

func TestLastingFailureIsLoggedAtGrowingIntervals(t *testing.T) {
	var out bytes.Buffer
	l := &eventLogger{log: messages.NewLog(&out, true, false)}
	start := time.Now()
	event := holdfast.Event{Type: holdfast.EventError, Name: "job", Op: "renew", Err: errors.New("no route to host")}
	for s := range 600 { // ten minutes, one failure a second
		l.logFailure(event, start.Add(time.Duration(s)*time.Second))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 10 || len(lines) > 16 { // after 0, 2, 6, 14, 30, 62 s, then every minute
		t.Errorf("logged %d times:\n%s", len(lines), out.String())
	}
	if want := `holdfast: cannot renew "job", retrying: no route to host`; lines[0] != want {
		t.Errorf("first: %s\nwant:  %s", lines[0], want)
	}
	if want := "(3 times in 2s)"; !strings.HasSuffix(lines[1], want) {
		t.Errorf("second: %s, want … %s", lines[1], want)
	}

	// Another failure is logged at once, and so is the same one after a long time without it.
	out.Reset()
	event.Op = "release"
	l.logFailure(event, start.Add(600*time.Second))
	l.logFailure(event, start.Add(time.Hour))
	if got := strings.Count(out.String(), "cannot release"); got != 2 {
		t.Errorf("logged %d times, not 2:\n%s", got, out.String())
	}
}
