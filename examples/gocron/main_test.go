package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
)

var token = regexp.MustCompile(`under token (\d+)`)

// Two copies make each report once. When one is killed, the other makes them all.
func TestReportsAreMadeOnce(t *testing.T) {
	program, backend := processes.Build(t), "file:"+filepath.ToSlash(t.TempDir())
	start := func() *processes.Process {
		return processes.Start(t, program, "-backend", backend, "-every", "500ms", "-ttl", "2s")
	}
	first, second := processes.First(start(), start(), "the report was made")
	first.Await("scheduled", 1)
	second.Await("scheduled", 1)
	first.Await("the report was made", 2)
	first.Kill()
	made := len(token.FindAllString(second.Output(), -1))
	second.Await("the report was made", made+3)

	// Each report has a lock, and so a token, of its own.
	var tokens []int
	for _, m := range token.FindAllStringSubmatch(first.Output()+second.Output(), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, n)
	}
	slices.Sort(tokens)
	if len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("two reports have the same token: %v", tokens)
	}
}
