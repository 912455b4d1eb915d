package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
)

var token = regexp.MustCompile(`under token (\d+)`)

const period = 500 * time.Millisecond

// last returns the last token that a process printed.
func last(output string) (n int) {
	for _, m := range token.FindAllStringSubmatch(output, -1) {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// Two copies make each report once. When one is killed, the other makes them all.
func TestReportsAreMadeOnce(t *testing.T) {
	program, backend := processes.Build(t), "file:"+filepath.ToSlash(t.TempDir())
	start := func() *processes.Process {
		return processes.Start(t, program, "-backend", backend, "-every", period.String(), "-ttl", "2s")
	}
	one, two := start(), start()
	one.Await("scheduled", 1)
	two.Await("scheduled", 1)
	// The one whose timer fires first after the minimum hold makes the reports. It is killed.
	processes.First(one, two, "the report was made")
	time.Sleep(3 * period)
	killed, other := one, two
	if last(two.Output()) > last(one.Output()) {
		killed, other = two, one
	}
	killed.Kill()
	made := len(token.FindAllString(other.Output(), -1))
	other.Await("the report was made", made+3)

	// Each report has a lock, and so a token, of its own.
	var tokens []int
	for _, m := range token.FindAllStringSubmatch(one.Output()+two.Output(), -1) {
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
