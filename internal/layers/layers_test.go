// Package layers checks which packages may depend on which.
package layers

import (
	"os/exec"
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
	for _, pkg := range []string{"drivers/memory", "drivers/file", "drivers/mongo", "drivers/azblob", "lockertest"} {
		for _, d := range dependencies(t, pkg) {
			if strings.HasPrefix(d, module) && d != module+"/driver" && !strings.HasPrefix(d, module+"/driver/") {
				t.Errorf("%s depends on %s", pkg, d)
			}
		}
	}
}

// The library itself needs nothing but the standard library, and not its HTTP server.
func TestLibraryNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, pkg := range []string{"", "driver"} {
		for _, d := range dependencies(t, pkg) {
			if first, _, _ := strings.Cut(d, "/"); strings.Contains(first, ".") && !strings.HasPrefix(d, module) {
				t.Errorf("package %q depends on %s", pkg, d)
			}
			if d == "net/http" {
				t.Errorf("package %q depends on net/http", pkg)
			}
		}
	}
}

// Packages stand on floors: each above all that it imports. Few floors keep the way down short.
func TestFloors(t *testing.T) {
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
	floors := map[string]int{}
	var floor func(pkg string) int
	floor = func(pkg string) int {
		if floors[pkg] == 0 {
			below := 0
			for _, i := range imports[pkg] {
				if strings.HasPrefix(i, module) {
					below = max(below, floor(i))
				}
			}
			floors[pkg] = below + 1
		}
		return floors[pkg]
	}
	for pkg := range imports {
		if n := floor(pkg); n > most {
			t.Errorf("%s is on floor %d, above %d", pkg, n, most)
		}
	}
}

// The root folder stays one that can be read at a glance.
func TestRootFolder(t *testing.T) {
	const most = 30
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Skip("not a git checkout")
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "/") {
			n++
		}
	}
	if n > most {
		t.Errorf("the root folder has %d files, more than %d", n, most)
	}
}
