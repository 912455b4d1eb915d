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
const maxRoot = 46

// layout is what the root folder must have under these names: whoever looks for the contract, the elections, a backend, the suite
// on real servers or a first try finds it without a search.
var layout = []string{"go.mod", "go.sum", "locker.go", "election.go", "drivers", "drivers/mongo", "drivers/azblob", "integration",
	"docker-compose.yml", "README.md"}

func TestLayout(t *testing.T) {
	for _, entry := range layout {
		if _, err := os.Stat(filepath.Join(root, entry)); err != nil {
			t.Errorf("%s must not be moved or renamed: %v", entry, err)
		}
	}
	for _, module := range []string{"go.mongodb.org/mongo-driver/v2", "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"} {
		requires(t, "go.mod", module)
	}
	requires(t, "integration/go.mod", "github.com/testcontainers/testcontainers-go")
	// The files have what their names say.
	for file, declares := range map[string]string{"locker.go": "Locker = driver.Locker", "election.go": "type LeaderAwareRunner struct"} {
		if text := read(t, file); !strings.Contains(text, declares) {
			t.Errorf("%s does not have %q", file, declares)
		}
	}
	compose := read(t, "docker-compose.yml")
	for _, service := range []string{"mongo1", "mongo2", "mongo3", "azurite", "worker1", "worker2", "worker3"} {
		if !regexp.MustCompile(`(?m)^  ` + service + `:`).MatchString(compose) {
			t.Errorf("docker-compose.yml has no service %s", service)
		}
	}
}

func requires(t *testing.T, file, module string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v[^/]*$`).MatchString(read(t, file)) {
		t.Errorf("%s does not require %s directly", file, module)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

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
