package event_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/event"
)

func TestTypeString(t *testing.T) {
	for typ, want := range map[event.Type]string{
		0: "unknown", event.Acquired: "acquired", event.Released: "released", event.Lost: "lost", event.Overrun: "overrun",
		event.HolderSeen: "holder seen", event.SteppedDown: "stepped down", event.Error: "error", event.Waiting: "waiting", 99: "event 99",
	} {
		if got := typ.String(); got != want {
			t.Errorf("type %d is %q, want %q", uint8(typ), got, want)
		}
	}
}

func TestEveryTypeHasAName(t *testing.T) {
	for typ := range event.End {
		if typ.String() == "" {
			t.Errorf("type %d has no name", uint8(typ))
		}
	}
}

// Package holdfast has the same numbers: its constants stand in the order of the names.
func TestNamesAreThoseOfPackageHoldfast(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	next, capital := event.Acquired, regexp.MustCompile(`([a-z])([A-Z])`)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Event") {
			words := capital.ReplaceAllString(strings.TrimPrefix(spec.Names[0].Name, "Event"), "$1 $2")
			if next.String() != strings.ToLower(words) {
				t.Errorf("%s has the number of %q", spec.Names[0].Name, next)
			}
			next++
		}
		return true
	})
	if next != event.End {
		t.Errorf("package holdfast has %d events, not %d", next-1, event.End-1)
	}
}

func TestEventString(t *testing.T) {
	for want, e := range map[string]event.Event{
		`acquired "job", token 7`:                 {Type: event.Acquired, Name: "job", Owner: "me", Token: 7},
		`holder seen "job": "web-3", token 7`:     {Type: event.HolderSeen, Name: "job", Owner: "web-3", Token: 7},
		`holder seen "job": "me" in this process`: {Type: event.HolderSeen, Name: "job", Owner: "me", Own: true},
		`error "job" in renew, token 7: no route`: {Type: event.Error, Name: "job", Op: "renew", Token: 7, Err: errors.New("no route")},
		`released "job", shared, token 7`:         {Type: event.Released, Name: "job", Owner: "me", Token: 7, Shared: true},
		`lost "job": not renewed in time`:         {Type: event.Lost, Name: "job", Err: errors.New("not renewed in time")},
	} {
		if got := e.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAsLeaderMarksEvents(t *testing.T) {
	var got event.Event
	event.AsLeader(func(e event.Event) { got = e })(event.Event{Type: event.Acquired, Name: "job"})
	if !got.Leader || got.Name != "job" {
		t.Errorf("got %+v", got)
	}
}

// panicking is a log handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("handler") }

func TestCallLogsAPanic(t *testing.T) {
	var out bytes.Buffer
	called := false
	event.Call(slog.New(slog.NewTextHandler(&out, nil)), func(event.Event) { called = true; panic("oops") },
		event.Event{Type: event.Lost, Name: "job"})
	for _, part := range []string{"level=ERROR", "event=lost", "lock=job", "panic=oops"} {
		if !called || !strings.Contains(out.String(), part) {
			t.Errorf("called: %v; %q is not logged, but %q", called, part, out.String())
		}
	}
	// The logger itself may panic.
	event.Call(slog.New(panicking{}), func(event.Event) { panic("oops") }, event.Event{})
}
