package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample returns a shortened output of go test.
func sample(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "bench.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestParse(t *testing.T) {
	r, err := parse(bytes.NewReader(sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	if r.cpu != "A Processor" {
		t.Errorf("the processor is %q", r.cpu)
	}
	for _, want := range []struct {
		benchmark, unit string
		value           float64
	}{
		{"internal/engine.Questions/HoldErr", "ns/op", 60.5}, {"drivers/mongo.Ratio/Renew", "ratio", 1.03}, {"drivers/azblob.Ratio/Renew",
			"ratio", 1.017},
		{"test/bench/scale.Leases/10000", "one-by-one/batched", 460},
	} {
		if got := r.metrics[want.benchmark][want.unit]; got != want.value {
			t.Errorf("%s: %v %s, want %v", want.benchmark, got, want.unit, want.value)
		}
	}
}

// All blocks of the real page are known and filled, and a second run changes nothing.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	page, all := filepath.Join(dir, "performance.md"), filepath.Join(dir, "measured.txt")
	for from, to := range map[string]string{filepath.Join("..", "..", "..", "..", "..", "docs", "performance.md"): page,
		filepath.Join("..", "..", "..", "measured.txt"): all} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report := func() string {
		t.Helper()
		var log bytes.Buffer
		if err := run(bytes.NewReader(sample(t)), []string{page, all}, &log); err != nil {
			t.Fatal(err)
		}
		if log.Len() > 0 {
			t.Errorf("%s", log.String())
		}
		var out []byte
		for _, file := range []string{page, all} {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, content...)
		}
		return string(out)
	}
	first := report()
	for _, want := range []string{
		"processors (A Processor)", "| change of holder after a release, relative to acquire + release, p50 | ≤ 1.5 | 1.27 | reached |",
		"| the same: a change of holder, relative to acquire + release | ≤ 1.5 | 2.10 | **not reached** |",
		"| the same: commands, compared with one for each lease | ≤ 1/30 | 1/460 | reached |",
		"| MongoDB: renew | 3.50 ms | 3.60 ms | 1.030 | 1.017–1.042 |", "| baseline: lock from articles | 37.0 s | 55.0 s | 59.0 s |",
		"each follow a pause, too |  | **0.77** (0.75–0.79) |",
		"| takeover with many waiters, p99, ms | ≤ 100 | 29 | 392 |",
		"200 followers or waiters; 500 changes of holder of one name for each way.",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if second := report(); second != first {
		t.Error("the second run changed the page")
	}
	for _, p := range pictures {
		svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), p.file))
		if err != nil || !bytes.Contains(svg, []byte("<svg")) {
			t.Errorf("%s: %v", p.file, err)
		}
		if !strings.Contains(first, "("+p.file+")") {
			t.Errorf("the page does not show %s", p.file)
		}
	}
}

// A block that was not measured does not change. An unknown block is an error.
func TestFill(t *testing.T) {
	r, err := parse(strings.NewReader("pkg: github.com/holdfast-go/holdfast/internal/engine\nBenchmarkQuestions/IsLeader-2 5 1 ns/op 0 " +
		"allocs/op\n"))
	if err != nil {
		t.Fatal(err)
	}
	page := "a\n<!-- measured: waiters -->\nold\n<!-- end -->\nb\n"
	out, missing, err := fill([]byte(page), r)
	if err != nil || string(out) != page || len(missing) != 1 {
		t.Errorf("%q, %q, %v", out, missing, err)
	}
	for _, bad := range []string{"<!-- measured: nobody -->\n<!-- end -->", "<!-- measured: waiters -->\n"} {
		if _, _, err := fill([]byte(bad), r); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := run(strings.NewReader(""), []string{filepath.Join(t.TempDir(), "none.md")}, io.Discard); err == nil {
		t.Error("a missing page is accepted")
	}
}
