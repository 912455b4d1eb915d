package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxRoot is how many files and folders the root folder may have, so that a reader sees what comes first.
const maxRoot = 40

// CONTRIBUTING.md explains each file and folder of the root folder, hidden ones too, and nothing else.
func TestRootIsExplained(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a clone: git ls-files: %v", err)
	}
	var entries []string
	for path := range strings.Lines(string(out)) {
		entry, _, _ := strings.Cut(strings.TrimSpace(path), "/")
		if _, err := os.Stat(filepath.Join(root, entry)); err == nil && !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| entry | what |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var explained []string
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			explained = append(explained, m[1])
		}
	}
	slices.Sort(entries)
	slices.Sort(explained)
	if !slices.Equal(entries, explained) {
		t.Errorf("the root folder has %q, CONTRIBUTING.md explains %q", entries, explained)
	}
	if len(entries) > maxRoot {
		t.Errorf("the root folder has %d entries; at most %d are allowed", len(entries), maxRoot)
	}
}
