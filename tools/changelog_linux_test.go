package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The section of a version is cut from what was unreleased, and its notes lead to the files of the tag.
func TestChangelog(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("changelog.sh")
	if err != nil {
		t.Fatal(err)
	}
	page, copied := filepath.Join(dir, "CHANGELOG.md"), filepath.Join(dir, "tools", "changelog.sh")
	if err := os.Mkdir(filepath.Dir(copied), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, script, 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	const before = "# Changelog\n\n## [Unreleased]\n\n" +
		"- [New](docs/new.md#it), [elsewhere](https://example.com/x).\n\n" +
		"### Fixed since the builds of May\n\n- Never.\n\n## [0.1.0] - 2026-01-02\n\n- Old.\n"
	if err := os.WriteFile(page, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), copied, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("notes", "v0.2.0"); err == nil || !strings.Contains(out, "no section [0.2.0]") {
		t.Errorf("notes of no section: %v\n%s", err, out)
	}
	if out, err := run("cut", "v0.2.0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, cut, found := strings.Cut(string(after), "## [Unreleased]\n\n## [0.2.0] - 20")
	if !found || !strings.Contains(cut, "New](docs/new.md#it)") {
		t.Errorf("it was cut to:\n%s", after)
	}
	notes, err := run("notes", "v0.2.0")
	for _, want := range []string{"[New](https://github.com/holdfast-go/holdfast/blob/v0.2.0/docs/new.md#it)",
		"[elsewhere](https://example.com/x)", "go get github.com/holdfast-go/holdfast@v0.2.0"} {
		if err != nil || !strings.Contains(notes, want) {
			t.Errorf("the notes lack %s (%v):\n%s", want, err, notes)
		}
	}
	for _, other := range []string{"Old", "Never"} {
		if strings.Contains(notes, other) {
			t.Errorf("the notes have %q of another section:\n%s", other, notes)
		}
	}
	if out, err := run("cut"); err == nil || !strings.Contains(out, "usage") {
		t.Errorf("without a version: %v\n%s", err, out)
	}
}
