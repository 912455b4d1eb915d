package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver/telemetry"
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

// guarded is a command that its guardian has stopped in time, or has not.
type guarded bool

func (g guarded) StoppedInTime(time.Duration) bool { return bool(g) }

// While holdfast is stopped, its lease expires although the guardian has stopped the command in time.
// That is no overrun, neither in the messages nor in the metrics.
func TestOverrunAsksTheGuardian(t *testing.T) {
	const token = 7
	for _, late := range []bool{false, true} {
		command := &runningCommand{[]uint64{token}, guarded(!late)}
		if got := command.overran(token); got != late {
			t.Errorf("the guardian was late: %v; overrun: %v", late, got)
		}
		var out bytes.Buffer
		events, metrics, counted := &eventLogger{log: messages.NewLog(&out, false, false)}, &overrunHook{}, &countedOverruns{}
		events.running.Store(command)
		events.observe(holdfast.Event{Type: holdfast.EventOverrun, Name: "job", Token: token})
		if got := strings.Contains(out.String(), "OVERRUN"); got != late {
			t.Errorf("the guardian was late: %v; messages: %s", late, out.String())
		}
		metrics.Hook, metrics.running = counted, &events.running
		metrics.Overrun(t.Context(), telemetry.Operation{Token: token})
		metrics.asking.Wait()
		if got := counted.n > 0; got != late {
			t.Errorf("the guardian was late: %v; overruns in the metrics: %d", late, counted.n)
		}
		if command.overran(token + 1) {
			t.Error("the command runs under another hold")
		}
	}
	if (*runningCommand)(nil).overran(token) {
		t.Error("no command runs")
	}
}

// countedOverruns counts the overruns that reach the metrics.
type countedOverruns struct {
	telemetry.Hook
	n int
}

func (c *countedOverruns) Overrun(context.Context, telemetry.Operation) { c.n++ }
