package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each command has a page with all its flags, and pages name only pages that exist.
func TestManPages(t *testing.T) {
	t.Setenv(envBackend, "")
	folder := filepath.Join(t.TempDir(), "man1")
	if code := execute([]string{"man", folder}, &bytes.Buffer{}, &bytes.Buffer{}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, command := range commands() {
		if command == "man" { // a hidden command
			continue
		}
		name := strings.ReplaceAll(strings.TrimSpace("holdfast "+command), " ", "-")
		content, err := os.ReadFile(filepath.Join(folder, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		page := strings.ReplaceAll(string(content), `\-`, "-")
		for _, section := range []string{".TH " + strings.ToUpper(name) + " 1 ", ".SH NAME\n" + name + " - ", ".SH SYNOPSIS\n.B holdfast",
			".SH OPTIONS\n", ".SH SEE ALSO\n"} {
			if !strings.Contains(page, section) {
				t.Errorf("the page of %q lacks %q", name, section)
			}
		}
		for _, line := range strings.Split(help(t, strings.Fields(command)...), "\n") {
			for _, word := range strings.Fields(line) {
				if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(line, "  ") && strings.HasPrefix(strings.TrimSpace(line), "-") &&
					strings.HasPrefix(word, "--") && !strings.Contains(page, flag) {
					t.Errorf("the page of %q lacks the flag %s", name, flag)
				}
			}
		}
		_, also, _ := strings.Cut(page, ".SH SEE ALSO\n")
		for line := range strings.Lines(also) {
			if _, err := os.Stat(filepath.Join(folder, strings.Fields(line)[1]+".1")); err != nil {
				t.Errorf("the page of %q names a page that is missing: %v", name, err)
			}
		}
		if strings.Contains(page, "holdfast-man") || strings.Contains(page, "XDG") {
			t.Errorf("the page of %q names what is not for its readers", name)
		}
	}
}
