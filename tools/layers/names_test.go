package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// home is the file of a driver that has a function, or a method of its Locker.
var home = map[string]string{
	"New": "locker.go", "Info": "locker.go", "Capabilities": "locker.go", "Close": "locker.go",
	"Open":       "url.go",
	"TryAcquire": "acquire.go",
	"Renew":      "renew.go", "RenewBatch": "renew.go",
	"Release": "release.go", "ReleaseBatch": "release.go",
	"Wake": "queue.go", "Leave": "queue.go",
	"Inspect": "inspect.go", "InspectBatch": "inspect.go",
	"List":  "list.go",
	"Break": "breaker.go", "BreakNow": "breaker.go",
	"ReadData": "data.go", "WriteData": "data.go",
	"Check": "check.go", "RemoveProbe": "check.go",
	"MissingStore": "reading.go",
	"NewGuard":     "guard.go", "NewFence": "fence.go",
	"do": "call.go", "denied": "errors.go", "hasCode": "errors.go",
}

// What is the same in several drivers is in a file of the same name. The two smallest drivers are read as a whole.
func TestFilesOfDriversHaveOneSetOfNames(t *testing.T) {
	t.Parallel()
	registers, _ := filepath.Glob("../../drivers/*/register.go") // an error means that the pattern is malformed
	nested, _ := filepath.Glob("../../drivers/*/*/register.go")
	for _, register := range append(registers, nested...) {
		driver, found := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(register)), "../../drivers/"), 0
		if driver == "file" {
			continue
		}
		files, err := filepath.Glob("../../drivers/" + driver + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || fn.Recv != nil && receiver(fn) != "Locker" || home[fn.Name.Name] == "" {
					continue
				}
				if found++; filepath.Base(path) != home[fn.Name.Name] {
					t.Errorf("%s: %s is in %s in the other drivers", path, fn.Name.Name, home[fn.Name.Name])
				}
			}
		}
		if found < 4 {
			t.Errorf("drivers/%s: only %d functions were found", driver, found)
		}
	}
}

func receiver(fn *ast.FuncDecl) string {
	of := fn.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}
