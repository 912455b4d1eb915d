package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// workshop reports whether a package, as a path below the root folder, tests the product, makes it or shows it.
func workshop(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return slices.Contains([]string{"test", "integration", "tools", "examples"}, first) ||
		slices.Contains([]string{"web/browsertest", "adapters/integration"}, pkg)
}

// productImports returns what each package of the repository imports of it without its tests, in all modules, as paths below the
// root folder. It reads the files, so that the requirements of large modules need not be there.
func productImports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && file != "../.." && (strings.HasPrefix(name, ".") || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Clean(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file))+"/", "../../"))
		all[pkg] = append(all[pkg], "")
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if below, found := strings.CutPrefix(imported+"/", module+"/"); found {
				all[pkg] = append(all[pkg], path.Clean(below))
			}
		}
		return nil
	})
	if err != nil || len(all) < 60 {
		t.Fatalf("%d packages were found (%v)", len(all), err)
	}
	return all
}

// What tests, makes or shows the product is not part of it.
func TestProductNeedsNoWorkshop(t *testing.T) {
	for pkg, imports := range productImports(t) {
		if workshop(pkg) {
			continue
		}
		for _, i := range imports {
			if i != "" && workshop(i) {
				t.Errorf("%s imports %s without being a test", pkg, i)
			}
		}
	}
}

// internal/ has the product alone: each package is imported by one that users import or run, directly or by way of others.
func TestInternalIsTheProduct(t *testing.T) {
	imports := productImports(t)
	needed := map[string]bool{}
	var need func(pkg string)
	need = func(pkg string) {
		if pkg == "" || needed[pkg] || workshop(pkg) {
			return
		}
		needed[pkg] = true
		for _, i := range imports[pkg] {
			need(i)
		}
	}
	for pkg := range imports {
		if !strings.HasPrefix(pkg, "internal/") {
			need(pkg)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if strings.HasPrefix(pkg, "internal/") && !needed[pkg] {
			t.Errorf("nothing that users import or run needs %s: what only tests use belongs to test/", pkg)
		}
	}
}
