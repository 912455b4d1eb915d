package history_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
)

// Two processes record, and one is killed in the middle of a line.
func TestRecordAndLoad(t *testing.T) {
	dir := t.TempDir()
	first, err := history.NewRecorder(dir, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	before := history.Now()
	first.Call(history.Write, "r", 10, 7)(history.OK, 0, 0)
	first.Call(history.Read, "r", 0, 0)(history.OK, 10, 7)
	first.Call(history.Write, "r", 10, 8) // no answer
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	after := history.Now()

	runner, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	runner.Record(history.Line{Kind: history.Pause, Client: 3, Process: 1})
	runner.Record(history.Line{Kind: history.Fault, Note: "fault"})
	if err := runner.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "process-0001.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"at":12,"kind":"ca`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	h, err := history.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Operations) != 3 || len(h.Pauses) != 1 || len(h.Faults) != 1 {
		t.Fatalf("%+v", h)
	}
	for i, want := range []history.Operation{
		{Client: 3, Process: 1, Op: history.Write, Key: "r", Token: 10, Value: 7, Outcome: history.OK},
		{Client: 3, Process: 1, Op: history.Read, Key: "r", Token: 10, Value: 7, Outcome: history.OK},
		{Client: 3, Process: 1, Op: history.Write, Key: "r", Token: 10, Value: 8, Outcome: history.Unknown},
	} {
		got := h.Operations[i]
		if got.Start < before || got.Start > after || got.End < got.Start || (got.End == history.Never) != (want.Outcome == history.Unknown) {
			t.Errorf("operation %d is from %v to %v", i, got.Start, got.End)
		}
		if got.Start, got.End = 0, 0; got != want {
			t.Errorf("operation %d: %+v, want %+v", i, got, want)
		}
	}
	if p := h.Pauses[0]; p.Process != 1 || p.Start < before || p.Stop != history.Never {
		t.Errorf("%+v", p)
	}
}

func TestRecorderReportsFailures(t *testing.T) {
	dir := t.TempDir()
	r, err := history.NewRecorder(dir, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := history.NewRecorder(dir, 0, 1); err == nil {
		t.Error("two recorders use the same file")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.Record(history.Line{Kind: history.Ask})
	if err := r.Close(); err == nil {
		t.Error("a line was lost without an error")
	}
}

func TestLoadFailures(t *testing.T) {
	dir := t.TempDir()
	if _, err := history.Load(dir); err == nil {
		t.Error("an empty folder was accepted")
	}
	if err := os.WriteFile(filepath.Join(dir, "process-0001.jsonl"), []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Load(dir); err == nil {
		t.Error("a damaged line was accepted")
	}
}

// The clock advances between readings, and is not the wall clock.
func TestNow(t *testing.T) {
	a := history.Now()
	time.Sleep(time.Millisecond)
	if b := history.Now(); b-a < time.Millisecond || b-a > time.Minute {
		t.Errorf("%v after a millisecond", b-a)
	}
}
