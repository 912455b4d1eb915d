package layers

import (
	"encoding/json"
	"os"
	"os/exec"
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
	rows := regexp.MustCompile("(?m)^\\| `(drivers/[a-z]+)` \\|.*\\| (\\d+) \\| (\\d+) \\|$").FindAllStringSubmatch(string(text), -1)
	checked := 0
	for _, row := range rows {
		if !slices.Contains(drivers(t), row[1]) { // a module of its own
			continue
		}
		checked++
		modules, packages := linked(t, ".", "./"+row[1])
		if got := []string{strconv.Itoa(len(modules)), strconv.Itoa(len(packages))}; !slices.Equal(got, row[2:]) {
			t.Errorf("%s links %s modules and %s packages of others, and docs/weights.md says %s and %s: is that needed?\n%s", row[1],
				got[0], got[1], row[2], row[3], strings.Join(packages, "\n"))
		}
	}
	if checked != len(drivers(t)) {
		t.Errorf("docs/weights.md has %d of the drivers %v", checked, drivers(t))
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

// goCommand runs go for linux/amd64, whatever the machine is, in the root folder.
func goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	return cmd
}

// linked returns the modules and the packages of others that a program with the library and these packages has.
func linked(t *testing.T, pkgs ...string) (modules, packages []string) {
	t.Helper()
	const format = "{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}"
	out, err := goCommand(append([]string{"list", "-deps", "-f", format}, pkgs...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == "" || mod == module {
			continue
		}
		packages = append(packages, pkg)
		if !slices.Contains(modules, mod) {
			modules = append(modules, mod)
		}
	}
	return modules, packages
}
