package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
)

// measured returns a report as the command writes it.
func measured(t *testing.T, o bench.Options) []byte {
	t.Helper()
	r, err := bench.Run(t.Context(), "mem:", o)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Results that were measured are drawn, and those that were not are left out.
func TestReportIsDrawn(t *testing.T) {
	for what, c := range map[string]struct {
		options bench.Options
		panels  int
		shows   string
	}{
		"latencies": {bench.Options{Rounds: 3}, 1, "release"},
		"leases":    {bench.Options{Leases: []int{2}, TTL: time.Second, Hold: time.Millisecond}, 1, "calls per second"},
		"everything": {bench.Options{Rounds: 3, HandOvers: 1, Leases: []int{2, 3}, TTL: time.Second, Hold: time.Millisecond}, 2,
			"handoff after a release"},
	} {
		report := measured(t, c.options)
		var svg, picture bytes.Buffer
		if err := errors.Join(run(bytes.NewReader(report), &svg, "svg"), run(bytes.NewReader(report), &picture, "png")); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !strings.Contains(svg.String(), c.shows) {
			t.Errorf("%s: the picture does not show %q", what, c.shows)
		}
		for d := xml.NewDecoder(&svg); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		i, err := png.Decode(&picture)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if size := i.Bounds(); size.Dx() < 900*c.panels || size.Dx() > 1000*c.panels {
			t.Errorf("%s: the picture is %d pixels wide, want %d panels", what, size.Dx(), c.panels)
		}
	}
}

// Input that cannot be drawn is an error that says why.
func TestReportIsRefused(t *testing.T) {
	report := string(measured(t, bench.Options{Rounds: 3}))
	for _, c := range []struct{ input, format, want string }{
		{report, "gif", `"gif"`},
		{"", "svg", "holdfast bench --json"},
		{"{}", "svg", `"backend" is missing`},
		{`{"backend":"mem"}`, "svg", "nothing was measured"},
		{`{"backend":"mem","acquire":{"count":1}}`, "svg", `acquire: "percentilesMs" is missing`},
	} {
		if err := run(strings.NewReader(c.input), io.Discard, c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q as %s: %v, want an error that says %q", c.input, c.format, err, c.want)
		}
	}
}
