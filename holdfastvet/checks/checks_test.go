package checks

import (
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/packages"
)

func TestLockContext(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), LockContext, "lockcontext", "observed")
}

func TestHoldRelease(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), HoldRelease, "holdrelease")
}

func TestFencedWrite(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), FencedWrite, "fencedwrite")
}

func TestFencedWriteStrict(t *testing.T) {
	setFlag(t, "strict")
	analysistest.Run(t, analysistest.TestData(), FencedWrite, "fencedwritestrict")
}

func TestLockDeadlock(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), LockDeadlock, "lockdeadlock")
}

func TestLockTransaction(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), LockTransaction, "locktransaction")
}

func setFlag(t *testing.T, name string) {
	t.Helper()
	if err := FencedWrite.Flags.Set(name, "true"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = FencedWrite.Flags.Set(name, "false") })
}

// The declarations in testdata are those of the library and its drivers: same names, same
// parameters. What the checks know by name exists.
func TestDeclarationsAreTheLibrarys(t *testing.T) {
	stubs := load(t, "testdata/src", append(os.Environ(), "GO111MODULE=off", "GOPATH="+analysistest.TestData()),
		slices.Concat(inRoot, inPostgres)...)
	libraries := load(t, "../..", os.Environ(), inRoot...)
	maps.Copy(libraries, load(t, "../../drivers/postgres", os.Environ(), inPostgres...))
	for path, stub := range stubs {
		if libraries[path] == nil {
			t.Errorf("package %s does not exist", path)
			continue
		}
		for _, name := range stub.Scope().Names() {
			want := libraries[path].Scope().Lookup(name)
			if want == nil {
				t.Errorf("%s.%s does not exist", path, name)
				continue
			}
			compare(t, path+"."+name, stub.Scope().Lookup(name), want)
		}
	}
	takesFunction := maps.Clone(transactions)
	for k, to := range callbacks {
		takesFunction[k] = to.arg
	}
	for k, arg := range takesFunction {
		fn := function(libraries, k)
		if fn == nil {
			t.Errorf("%s does not exist", k)
			continue
		}
		params := fn.Signature().Params()
		if arg >= params.Len() {
			t.Errorf("%s has no parameter %d", k, arg)
		} else if _, ok := params.At(arg).Type().Underlying().(*types.Signature); !ok {
			t.Errorf("parameter %d of %s is no function", arg, k)
		}
	}
	for name, at := range mongoWrites {
		fn := function(libraries, collector+name)
		switch {
		case fn == nil:
			t.Errorf("a collection has no method %s", name)
		case at.filter > 0 && fn.Signature().Params().At(at.filter).Name() != "filter":
			t.Errorf("parameter %d of %s is not the filter", at.filter, name)
		}
	}
	for k := range sqlWrites {
		if !strings.HasPrefix(k, "database/sql.") && function(libraries, k) == nil {
			t.Errorf("%s does not exist", k)
		}
	}
	for k := range blobWrites {
		if function(libraries, k) == nil {
			t.Errorf("%s does not exist", k)
		}
	}
}

// The packages that testdata has, by the module that has or requires them.
var (
	inRoot = []string{library, library + "/driver/guard", library + "/drivers/mongo", library + "/drivers/azblob", library + "/leases",
		library + "/partitions", library + "/adapters/gocronlock", library + "/adapters/cronlock", mongoSDK, azureSDK + "/blockblob"}
	inPostgres = []string{library + "/drivers/postgres", pgxSDK, pgxSDK + "/pgxpool"}
)

// load returns packages as a folder has them.
func load(t *testing.T, dir string, env []string, paths ...string) map[string]*types.Package {
	t.Helper()
	config := &packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps |
		packages.NeedExportFile, Dir: dir, Env: env}
	pkgs, err := packages.Load(config, paths...)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*types.Package{}
	for _, p := range pkgs {
		for _, err := range p.Errors {
			t.Errorf("%s: %v", p.PkgPath, err)
		}
		found[p.PkgPath] = p.Types
	}
	return found
}

// function finds a function or method by its key.
func function(pkgs map[string]*types.Package, k string) *types.Func {
	dot := strings.LastIndex(k, "/") + strings.Index(k[strings.LastIndex(k, "/"):], ".")
	pkg, name := pkgs[k[:dot]], k[dot+1:]
	if pkg == nil {
		return nil
	}
	of, name, isMethod := strings.Cut(name, ".")
	obj := pkg.Scope().Lookup(of)
	if !isMethod {
		fn, _ := obj.(*types.Func)
		return fn
	}
	if obj == nil {
		return nil
	}
	found, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, pkg, name)
	fn, _ := found.(*types.Func)
	return fn
}

// compare compares the functions, and the methods and fields of types, by their parameters.
func compare(t *testing.T, name string, stub, library types.Object) {
	t.Helper()
	if fn, ok := stub.(*types.Func); ok {
		want, ok := library.(*types.Func)
		if !ok || fn.Signature().Params().Len() != want.Signature().Params().Len() ||
			fn.Signature().Results().Len() != want.Signature().Results().Len() {
			t.Errorf("%s is %v in testdata and %v in the library", name, stub, library)
		}
		return
	}
	named, ok := types.Unalias(stub.Type()).(*types.Named)
	if !ok {
		return
	}
	for m := range named.Methods() {
		found, _, _ := types.LookupFieldOrMethod(types.NewPointer(library.Type()), true, library.Pkg(), m.Name())
		if found == nil {
			t.Errorf("%s has no method %s", name, m.Name())
			continue
		}
		compare(t, name+"."+m.Name(), m, found)
	}
}
