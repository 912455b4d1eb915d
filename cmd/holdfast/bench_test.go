package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// A signal ends bench with its code. Results that are there are written. Whether a lock is still held, only the error can say.
func TestBenchInterrupted(t *testing.T) {
	for what, c := range map[string]struct {
		report    *bench.Report
		err       error
		out, text string
	}{
		"while it measures":        {nil, context.Canceled, "", "interrupted: there are no results: context canceled"},
		"during the last releases": {&bench.Report{Backend: "file"}, nil, `"backend":"file"`, "exit code 130"},
	} {
		var out strings.Builder
		err := (&benchCmd{JSON: true}).finish(&out, c.report, c.err, syscall.SIGINT)
		if exitcode.Of(err) != 130 || err.Error() != c.text || !strings.Contains(out.String(), c.out) || (c.out == "") != (out.Len() == 0) {
			t.Errorf("%s: code %d, %v: %s", what, exitcode.Of(err), err, out.String())
		}
	}
}
