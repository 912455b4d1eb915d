package main

import (
	"testing"
	"time"
)

// In a real bash, the tab key completes commands, flags and names.
func TestCompletionInBash(t *testing.T) {
	l := newLocks(t)
	l.hold("web-1", "billing", time.Hour)
	l.hold("web-1", "a:b=c", time.Hour)
	s := openScreen(t, 120, 40, []string{"HOLDFAST_BACKEND=" + l.url, "PS1=$ "}, "bash", "--norc", "--noprofile", "-i")
	s.enter("source <(holdfast completion bash); echo $((40+2))\n")
	s.shows("42")
	for _, c := range []struct{ typed, want string }{
		{"holdfast stat\t", "$ holdfast status"},
		{"holdfast status bil\t", "$ holdfast status billing"},
		{"holdfast status a:b\t", "$ holdfast status a:b=c"},
		{"holdfast watch --ev\t", "$ holdfast watch --every"},
		{"holdfast data g\tbil\t", "$ holdfast data get billing"},
		{"holdfast --backend=azb\t", "$ holdfast --backend=azblob://"},
	} {
		// If the time for reading the names has passed, a user would press the key again.
		for deadline := time.Now().Add(patience); ; {
			s.enter(c.typed)
			done := s.showsWithin(2*completeTimeout, c.want)
			if !done && time.Now().After(deadline) {
				t.Fatalf("%q was not completed to %q", c.typed, c.want)
			}
			s.enter("\x15\x0c") // removes the line, and clears the screen
			s.until("an empty line", func(lines []string) bool { return lines[0] == "$" && lines[1] == "" })
			if done {
				break
			}
		}
	}
}
