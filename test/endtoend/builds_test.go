//go:build unix

package endtoend

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// firstBefore is the build before until there is a release.
const firstBefore = "f81111df46c838fd05bea75a532c78be409d6f37"

// build is the command of one version.
type build struct {
	name, path string
	releases   bool // the locks of a command that was killed, by its guardian
}

// builds returns the command of the last release before this one, which it builds from the history, and today's.
func builds(t *testing.T) (before, today build) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit := commitBefore(t, git)
	t.Logf("the build before is that of %s", commit)
	dir := t.TempDir()
	archive, source := filepath.Join(dir, "source.tar"), filepath.Join(dir, "source")
	if _, err := git("archive", "-o", archive, commit); err != nil {
		t.Fatalf("git archive %s: %v", commit, err)
	}
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-x", "-f", archive, "-C", source).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	compile := func(name, source string, releases bool) build {
		b := build{name, filepath.Join(dir, name), releases}
		// Go's cache does not depend on the folder, with -trimpath.
		cmd := exec.Command("go", "build", "-tags", "full", "-trimpath", "-o", b.path, ".")
		cmd.Dir = filepath.Join(source, "cmd", "holdfast")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build of %s: %v\n%s", source, err, out)
		}
		return b
	}
	return compile("before", source, commit != firstBefore), compile("today", root, true)
}

// commitBefore returns the commit of which the last release was made, unless that is this one: then it is the release before.
// The tagged commits are beside the branch, and lack the replacements of modules by folders.
func commitBefore(t *testing.T, git func(args ...string) (string, error)) string {
	t.Helper()
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		t.Fatalf("this test builds an earlier commit, so it needs a clone of the repository with its history: %v", err)
	}
	// Of two tags the later one is first, and v1.0.0 is later than v1.0.0-rc.1.
	tags, err := git("-c", "versionsort.suffix=-", "tag", "--list", "v[0-9]*", "--sort=-version:refname")
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range append(strings.Fields(tags), firstBefore) {
		commit, err := git("merge-base", tag, "HEAD")
		if err != nil {
			t.Fatalf("this clone lacks the commits between the build before, %s, and this one: git fetch --unshallow --tags fetches them", tag)
		}
		if commit != head {
			return commit
		}
	}
	t.Fatalf("there is no build before %s", firstBefore)
	return ""
}
