// Package checks has the analyzers of holdfastvet. Each reports only what is misuse whatever
// the rest of the program does; docs/holdfastvet.md gives the reasons.
package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzers returns all checks, for a driver such as golang.org/x/tools/go/analysis/multichecker.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{LockContext, HoldRelease, FencedWrite, LockDeadlock, LockTransaction}
}

const page = "https://github.com/holdfast-go/holdfast/blob/main/docs/holdfastvet.md#"

// newAnalyzer makes an analyzer with the flag "tests".
func newAnalyzer(name, doc string, run func(*check), requires ...*analysis.Analyzer) *analysis.Analyzer {
	a := &analysis.Analyzer{Name: name, Doc: doc, URL: page + name, Requires: requires}
	tests := a.Flags.Bool("tests", false, "check test files, and files that import package testing, too")
	a.Run = func(pass *analysis.Pass) (any, error) {
		c := &check{Pass: pass, info: pass.TypesInfo, decls: map[*types.Func]*ast.FuncDecl{}, silent: map[string]map[int]bool{}}
		for _, file := range pass.Files {
			if ast.IsGenerated(file) || !*tests && isTest(pass, file) {
				continue
			}
			c.files = append(c.files, file)
			c.noteSilenced(file)
		}
		for _, file := range pass.Files {
			for _, decl := range file.Decls {
				if d, ok := decl.(*ast.FuncDecl); ok && d.Body != nil {
					if fn, ok := c.info.Defs[d.Name].(*types.Func); ok {
						c.decls[fn] = d
					}
				}
			}
		}
		run(c)
		return nil, nil
	}
	return a
}

// isTest reports whether a file is for tests: a test file, or a helper that imports package testing.
func isTest(pass *analysis.Pass, file *ast.File) bool {
	return strings.HasSuffix(pass.Fset.File(file.FileStart).Name(), "_test.go") ||
		slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
}

// check is one run of an analyzer on a package.
type check struct {
	*analysis.Pass
	info   *types.Info
	files  []*ast.File // those to report on
	decls  map[*types.Func]*ast.FuncDecl
	silent map[string]map[int]bool // lines with a comment that silences this check, by file
}

var nolint = regexp.MustCompile(`^//\s?nolint:([\w,]+)`)

func (c *check) noteSilenced(file *ast.File) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			m := nolint.FindStringSubmatch(comment.Text)
			if m == nil {
				continue
			}
			for name := range strings.SplitSeq(m[1], ",") {
				if name == c.Analyzer.Name || name == "holdfastvet" {
					at := c.Fset.Position(comment.Pos())
					if c.silent[at.Filename] == nil {
						c.silent[at.Filename] = map[int]bool{}
					}
					c.silent[at.Filename][at.Line] = true
				}
			}
		}
	}
}

// report reports unless a comment on the same line silences it.
func (c *check) report(at token.Pos, format string, args ...any) {
	if p := c.Fset.Position(at); !c.silent[p.Filename][p.Line] {
		c.Reportf(at, format, args...)
	}
}

// A body is the code of a function that a program gives to the library.
type body struct {
	call  *ast.CallExpr // of the library's function
	key   string        // of that function
	to    callback
	arg   ast.Expr
	outer *ast.FuncDecl // the declared function that has the call; nil outside functions

	typ   *ast.FuncType
	block *ast.BlockStmt
	// node is the function literal or declaration; declared says which.
	node     ast.Node
	declared bool
	// For a method value x.m: the receiver of m, and x.
	recv types.Object
	base ast.Expr
}

// bodies calls fn for every function that the package gives to the library and that the
// package has itself.
func (c *check) bodies(fn func(body)) {
	c.calls(func(call *ast.CallExpr, outer *ast.FuncDecl) {
		k := callee(c.info, call)
		to, ok := callbacks[k]
		if !ok || to.arg >= len(call.Args) {
			return
		}
		b := body{call: call, key: k, to: to, arg: ast.Unparen(call.Args[to.arg]), outer: outer}
		if c.resolve(&b) {
			fn(b)
		}
	})
}

// calls calls fn for every call in the files to report on.
func (c *check) calls(fn func(call *ast.CallExpr, outer *ast.FuncDecl)) {
	for _, file := range c.files {
		for _, decl := range file.Decls {
			outer, _ := decl.(*ast.FuncDecl)
			ast.Inspect(decl, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					fn(call, outer)
				}
				return true
			})
		}
	}
}

// resolve finds the code of the function b.arg: a literal, a variable that only ever has one
// literal, or a function or method of this package.
func (c *check) resolve(b *body) bool {
	switch arg := b.arg.(type) {
	case *ast.FuncLit:
		b.typ, b.block, b.node = arg.Type, arg.Body, arg
		return true
	case *ast.Ident:
		switch obj := c.info.Uses[arg].(type) {
		case *types.Func:
			return c.resolveDecl(b, obj)
		case *types.Var:
			if lit := c.onlyLiteral(obj, b.outer); lit != nil {
				b.typ, b.block, b.node = lit.Type, lit.Body, lit
				return true
			}
		}
	case *ast.SelectorExpr:
		fn, ok := c.info.Uses[arg.Sel].(*types.Func)
		if !ok || !c.resolveDecl(b, fn) {
			return false
		}
		if d, ok := b.node.(*ast.FuncDecl); ok && d.Recv != nil && len(d.Recv.List[0].Names) == 1 {
			b.recv, b.base = c.info.Defs[d.Recv.List[0].Names[0]], arg.X
		}
		return true
	}
	return false
}

func (c *check) resolveDecl(b *body, fn *types.Func) bool {
	d := c.decls[fn.Origin()]
	if d == nil {
		return false
	}
	b.typ, b.block, b.node, b.declared = d.Type, d.Body, d, true
	return true
}

// onlyLiteral returns the literal that is a local variable's only value.
func (c *check) onlyLiteral(v *types.Var, outer *ast.FuncDecl) (lit *ast.FuncLit) {
	if outer == nil || v.Pos() < outer.Pos() || v.Pos() > outer.End() {
		return nil
	}
	values := 0
	ast.Inspect(outer, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				id, ok := lhs.(*ast.Ident)
				if !ok || c.info.ObjectOf(id) != v {
					continue
				}
				values++
				if len(n.Lhs) == len(n.Rhs) {
					lit, _ = ast.Unparen(n.Rhs[i]).(*ast.FuncLit)
				}
			}
		case *ast.UnaryExpr:
			if id, ok := n.X.(*ast.Ident); ok && n.Op == token.AND && c.info.Uses[id] == v {
				values = 2 // another may set it
			}
		}
		return true
	})
	if values != 1 {
		return nil
	}
	return lit
}

// context returns the object of the function's context parameter; nil if it has no name.
func (b body) context(info *types.Info) types.Object {
	for _, field := range b.typ.Params.List {
		if !isContext(info.TypeOf(field.Type)) {
			continue
		}
		for _, name := range field.Names {
			return info.Defs[name] // nil for _
		}
	}
	return nil
}

// within reports whether an object is declared in a node.
func within(obj types.Object, n ast.Node) bool {
	return obj != nil && n.Pos() <= obj.Pos() && obj.Pos() < n.End()
}

// mentions reports whether a node has an identifier that satisfies a condition.
func mentions(n ast.Node, condition func(*ast.Ident) bool) (found bool) {
	if n == nil {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && condition(id) {
			found = true
		}
		return !found
	})
	return found
}

// uses returns a condition for mentions.
func uses(info *types.Info, obj types.Object) func(*ast.Ident) bool {
	return func(id *ast.Ident) bool { return obj != nil && info.Uses[id] == obj }
}

// path describes a variable or a field of one, such as s.client: its root and the fields on the
// way. It reports false for other expressions.
func (c *check) path(e ast.Expr) (root types.Object, fields string, ok bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := c.info.ObjectOf(e).(*types.Var)
		return v, "", ok
	case *ast.SelectorExpr:
		if s := c.info.Selections[e]; s == nil {
			v, ok := c.info.Uses[e.Sel].(*types.Var) // of another package
			return v, "", ok
		} else if s.Kind() != types.FieldVal {
			return nil, "", false
		}
		root, fields, ok := c.path(e.X)
		return root, fields + "." + e.Sel.Name, ok
	case *ast.StarExpr:
		return c.path(e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return c.path(e.X)
		}
	}
	return nil, "", false
}

// same reports whether an expression inside a body and one outside it are surely the same
// variable.
func (c *check) same(b body, inside, outside ast.Expr) bool {
	inRoot, inFields, ok := c.path(inside)
	if !ok {
		return false
	}
	if b.recv != nil && inRoot == b.recv {
		root, fields, ok := c.path(b.base)
		if !ok {
			return false
		}
		inRoot, inFields = root, fields+inFields
	}
	root, fields, ok := c.path(outside)
	return ok && root == inRoot && fields == inFields
}
