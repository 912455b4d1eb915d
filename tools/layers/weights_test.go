package layers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What a program links of others, and what go.mod requires, is what docs/weights.md says. Whoever adds a module or a package finds out
// here, and says on the page what it costs. The size of the command has its limit in tools/release-check.sh.
func TestWeights(t *testing.T) {
	text, err := os.ReadFile("../../docs/weights.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(modFiles(t), "../../go.mod") { // so that Go's cache knows that the result depends on them
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string][]string{} // by the folder of the driver
	for _, row := range regexp.MustCompile("(?m)^\\| (`drivers/.*) \\|.*\\| (\\d+) \\| (\\d+) \\|$").FindAllStringSubmatch(string(text), -1) {
		for _, folder := range regexp.MustCompile("drivers/[a-z0-9/]+").FindAllString(row[1], -1) {
			rows[folder] = row[2:]
		}
	}
	for _, folder := range everyDriver(t) {
		modules, packages := linked(t, folder, ".", module)
		if got := []string{strconv.Itoa(len(modules)), strconv.Itoa(len(packages))}; !slices.Equal(got, rows[folder]) {
			t.Errorf("%s links %s modules and %s packages of others, and docs/weights.md says %q: is that needed?\n%s", folder, got[0], got[1],
				rows[folder], strings.Join(packages, "\n"))
		}
	}

	out, err := goCommand("mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct{ Require []struct{ Indirect bool } }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	count := map[bool]int{}
	for _, r := range mod.Require {
		count[r.Indirect]++
	}
	says := regexp.MustCompile(`requires (\d+) modules, and (\d+) more indirectly`).FindStringSubmatch(string(text))
	if want := []string{strconv.Itoa(count[false]), strconv.Itoa(count[true])}; says == nil || !slices.Equal(says[1:], want) {
		t.Errorf("go.mod requires %s modules, and %s indirectly; docs/weights.md says %q", want[0], want[1], says)
	}
}

func modFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../drivers/*/go.mod")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d modules were found: %v", len(files), err)
	}
	return files
}

// goCommand runs go for linux/amd64, whatever the machine is, in the root folder.
func goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	return cmd
}

// everyDriver returns the folders of all drivers, also of those that are modules of their own.
func everyDriver(t *testing.T) (all []string) {
	t.Helper()
	for _, depth := range []string{"*", "*/*"} {
		found, err := filepath.Glob("../../drivers/" + depth + "/conformance_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../"))
		}
	}
	if len(all) <= len(drivers(t)) {
		t.Fatalf("the drivers are %v", all)
	}
	return all
}

// linked returns the modules and the packages of others that a program with these packages has, in the module of a folder.
func linked(t *testing.T, folder string, pkgs ...string) (modules, packages []string) {
	t.Helper()
	const format = "{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}"
	list := goCommand(append([]string{"-C", folder, "list", "-deps", "-f", format}, pkgs...)...)
	var failure strings.Builder
	list.Stderr = &failure
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v\n%s", folder, err, failure.String())
	}
	for line := range strings.Lines(string(out)) {
		pkg, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == "" || mod == module || strings.HasPrefix(mod, module+"/") {
			continue
		}
		packages = append(packages, pkg)
		if !slices.Contains(modules, mod) {
			modules = append(modules, mod)
		}
	}
	return modules, packages
}
