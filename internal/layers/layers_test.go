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
