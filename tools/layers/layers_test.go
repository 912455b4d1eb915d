// Package layers checks which packages may depend on which.
package layers

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

// dependencies lists all packages that a package needs, itself excepted.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "./"+pkg)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v", pkg, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return p == strings.TrimSuffix(module+"/"+pkg, "/") })
}

// Drivers, and the suite that tests them, depend on the contract alone.
func TestDriversDependOnTheContract(t *testing.T) {
	for _, pkg := range append(drivers(t), "lockertest") {
		for _, d := range dependencies(t, pkg) {
			if strings.HasPrefix(d, module) && d != module+"/driver" && !strings.HasPrefix(d, module+"/driver/") {
				t.Errorf("%s depends on %s", pkg, d)
			}
		}
	}
}

// drivers lists the packages of this module's drivers, as the file system has them.
func drivers(t *testing.T) (all []string) {
	t.Helper()
	entries, err := os.ReadDir("../../drivers")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := os.Stat("../../drivers/" + e.Name() + "/go.mod"); e.IsDir() && err != nil {
			all = append(all, "drivers/"+e.Name())
		}
	}
	return all
}

// Every driver of this module is registered where the command and the tests of all backends find it, and runs
// the conformance suite.
func TestDriversAreRegistered(t *testing.T) {
	registered := dependencies(t, "internal/alldrivers")
	for _, d := range drivers(t) {
		if !slices.Contains(registered, module+"/"+d) {
			t.Errorf("internal/alldrivers does not import %s", d)
		}
	}
	for _, d := range drivers(t) {
		if _, err := os.Stat("../../" + d + "/conformance_test.go"); err != nil {
			t.Errorf("%s does not run the conformance suite: %v", d, err)
		}
	}
}

// The library itself, and what drivers are made of, need nothing but the standard library, and not its HTTP server.
func TestLibraryNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, pkg := range []string{"", "driver", "driver/cas", "driver/cas/castest", "driver/driverutil", "driver/guard", "driver/httpstore",
		"driver/lockrecord", "driver/retry", "driver/serverurl", "driver/sightings", "driver/waitqueue"} {
		for _, d := range dependencies(t, pkg) {
			if first, _, _ := strings.Cut(d, "/"); strings.Contains(first, ".") && !strings.HasPrefix(d, module) {
				t.Errorf("package %q depends on %s", pkg, d)
			}
			if d == "net/http" && pkg != "driver/httpstore" {
				t.Errorf("package %q depends on net/http", pkg)
			}
		}
	}
}

// What a waiter decides, and what a process does in queues, depends on events alone: no goroutine, clock, I/O, mutex or
// chance of its own.
func TestStateMachinesArePure(t *testing.T) {
	impure := regexp.MustCompile(`\bgo func|\bchan\b|time\.(Now|Since|Until|Sleep|After|New|Tick)|timing\.(Random|Jitter|Backoff|Shuffle)`)
	queue := []string{"maps", "math", "time", module + "/driver", module + "/driver/retry"}
	for pattern, allowed := range map[string][]string{
		"internal/engine/waiter/*.go":   {"cmp", "math", "slices", "time", module + "/driver", module + "/internal/timing"},
		"driver/waitqueue/positions.go": queue,
		"driver/waitqueue/stream.go":    queue,
		"driver/waitqueue/watches.go":   queue,
	} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), f, text, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range parsed.Imports {
				if !slices.Contains(allowed, strings.Trim(i.Path.Value, `"`)) {
					t.Errorf("%s imports %s", f, i.Path.Value)
				}
			}
			if found := impure.Find(text); found != nil {
				t.Errorf("%s has %q", f, found)
			}
		}
	}
}

// What lies in internal/ carries the public packages, and so does not depend on them.
func TestInternalPackagesAreBelowThePublicOnes(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}\n{{end}}", "./internal/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	below := regexp.MustCompile(`^` + module + `/(internal|driver|drivers|migrating)(/|$)`)
	for line := range strings.Lines(string(out)) {
		pkg, imported, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(imported, module) && !below.MatchString(imported) {
			t.Errorf("%s imports %s", pkg, imported)
		}
	}
}

// What plans, limits and batches calls knows nothing of the backend and of what the calls do.
func TestDispatchKnowsNoBackend(t *testing.T) {
	for _, d := range dependencies(t, "internal/dispatch") {
		if strings.HasPrefix(d, module) {
			t.Errorf("internal/dispatch depends on %s", d)
		}
	}
}

// A package is one level above the highest that it imports. Few levels keep chains of imports short.
func TestLevels(t *testing.T) {
	const most = 8
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		imports[fields[0]] = fields[1:]
	}
	levels := map[string]int{}
	var level func(pkg string) int
	level = func(pkg string) int {
		if levels[pkg] == 0 {
			below := 0
			for _, i := range imports[pkg] {
				if strings.HasPrefix(i, module) {
					below = max(below, level(i))
				}
			}
			levels[pkg] = below + 1
		}
		return levels[pkg]
	}
	for pkg := range imports {
		if n := level(pkg); n > most {
			t.Errorf("%s is on level %d; the most are %d", pkg, n, most)
		}
	}
}

// The packages of make fast start no servers: they and their tests do without the packages that start some.
func TestFastPackagesNeedNoServer(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(makefile), "\\\n", " ")
	packages := func(variable string) string {
		list := regexp.MustCompile(`(?m)^` + variable + ` \?= (.*)$`).FindStringSubmatch(text)
		if list == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		return list[1]
	}
	fast := strings.Fields(strings.ReplaceAll(packages("FAST_PKG"), "$(PKG_386)", packages("PKG_386")))
	cmd := exec.Command("go", append([]string{"list", "-test", "-f", "{{.ImportPath}} {{join .Deps \" \"}}"}, fast...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -test: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); slices.Contains(fields[1:], module+"/test/serverprocess") {
			t.Errorf("%s of FAST_PKG starts servers", fields[0])
		}
	}
}
