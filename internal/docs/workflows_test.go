package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	workflowUses = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	workflowMake = regexp.MustCompile(`\bmake ([a-z0-9][^\n}"]*)`)
)

// Actions of the workflows are pinned to commits, since a tag can be moved. What the workflows run
// exists.
func TestWorkflows(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d workflows were found (%v)", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if strings.Contains(string(text), "\t") {
			t.Errorf("%s has a tab, which YAML forbids for indentation", name)
		}
		if !strings.Contains(string(text), "\npermissions:\n  contents: read\n") {
			t.Errorf("%s does not restrict the token of all jobs to reading", name)
		}
		for _, m := range workflowUses.FindAllStringSubmatch(string(text), -1) {
			if !pinnedAction.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned to a commit, with the version in a comment", name, m[1])
			}
		}
		for _, m := range workflowMake.FindAllStringSubmatch(string(text), -1) {
			for _, word := range strings.Fields(m[1]) {
				if !strings.Contains(word, "=") && !slices.Contains(targets, word) {
					t.Errorf("%s: there is no target %s", name, word)
				}
			}
		}
	}
}

// make fuzz runs the fuzz tests of every module that has some.
func TestFuzzedModules(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^FUZZED_MODULES := (.*)$`).FindStringSubmatch(string(makefile))
	if list == nil {
		t.Fatal("the Makefile has no FUZZED_MODULES")
	}
	fuzzTest := regexp.MustCompile(`(?m)^func Fuzz`)
	modules := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && fuzzTest.Match(text) {
			modules[moduleOf(filepath.Dir(path))] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(modules))
	if got := slices.Sorted(slices.Values(strings.Fields(list[1]))); !slices.Equal(got, want) {
		t.Errorf("FUZZED_MODULES has %q, and fuzz tests are in %q", got, want)
	}
}

// moduleOf returns the folder of the module that a folder belongs to, relative to the root.
func moduleOf(folder string) string {
	for folder != root {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		folder = filepath.Dir(folder)
	}
	relative, err := filepath.Rel(root, folder)
	if err != nil {
		return folder
	}
	return filepath.ToSlash(relative)
}

// Each fault of the track record that has a command names a package and tests as scripts/before-fix.sh
// takes them.
func TestTrackRecordHasCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "track-record.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| [\d–, ]+ \| .+ \| .+ \| (?:[A-Z]+=\S+ )?[0-9a-f]{7} \| (\S+) \| .*?` + "`(.+)` \\|$")
	rows := row.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("only %d rows were found", len(rows))
	}
	for _, m := range rows {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("there is no package %s", m[1])
		}
		expression, _, _ := strings.Cut(strings.ReplaceAll(m[2], `\|`, "|"), " ")
		if _, err := regexp.Compile(expression); err != nil {
			t.Error(err)
		}
	}
}
