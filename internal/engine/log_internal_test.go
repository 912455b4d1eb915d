package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
)

// Dropped events are counted in the next line that is logged, also if the event that has the count is not.
func TestLogCountsDroppedEvents(t *testing.T) {
	var out bytes.Buffer
	log, now := logTo(slog.New(slog.NewTextHandler(&out, nil))), time.Now()
	failed := event.Event{Type: event.Error, Name: "job", Op: "acquire", Time: now}
	log(failed)
	repeated := failed
	repeated.Dropped = 3
	log(repeated)                                                              // a repetition: no line
	log(event.Event{Type: event.Acquired, Name: "job", Time: now, Dropped: 4}) // below the level
	log(event.Event{Type: event.Lost, Name: "job", Time: now, Dropped: 5})     // 12 in all
	log(event.Event{Type: event.Lost, Name: "another job", Time: now})         // none since
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], "dropped=12") || strings.Contains(lines[0]+lines[2], "dropped") {
		t.Errorf("logged:\n%s", out.String())
	}
}

// An event without a line of its own would be logged as a failure.
func TestEveryEventHasALine(t *testing.T) {
	for typ := event.Acquired; typ < event.End; typ++ {
		_, message := logLine(event.Event{Type: typ, Op: "a call"})
		if failed := message == failureLine("a call", nil); failed != (typ == event.Error) {
			t.Errorf("%s is logged as %q", typ, message)
		}
	}
}
