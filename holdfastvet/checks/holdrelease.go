package checks

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// HoldRelease reports holds that keep their lock for good.
var HoldRelease = newAnalyzer("holdrelease", `report a Hold that is not released

A Hold of Client.Lock or TryLock is renewed until Release or the client's Shutdown, so a hold that
is dropped keeps its lock for as long as the process lives. The check reports a hold that is
neither released nor passed on, a return before its release, and an error that is discarded: the
hold is then nil. A function that calls Shutdown may drop its holds.`, holdRelease, ctrlflow.Analyzer)

// A hold is a call of Lock or TryLock.
type hold struct {
	call  *ast.CallExpr
	outer ast.Node   // the declared function around it
	fn    ast.Node   // the innermost function around it
	v     *types.Var // the variable that has the hold; nil if there is none
	err   *types.Var // the variable that has the error; nil if there is none

	dropped  bool // the hold is discarded
	noError  bool // the error is discarded
	released bool
	escapes  bool // it goes to where this check does not look
	declared bool // the call's own statement declares v
	used     map[string]bool
}

func holdRelease(c *check) {
	flow, ok := c.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	if !ok {
		return
	}
	c.holds(func(h hold) {
		if h.noError {
			c.report(h.call.Pos(), "the error of %s is discarded: without the lock the hold is nil", types.ExprString(h.call.Fun))
		}
		switch {
		case c.shutsDown(h.outer):
		case h.dropped:
			c.report(h.call.Pos(), "the hold of %s is dropped: nobody can release it or notice its loss", types.ExprString(h.call.Fun))
		case h.v != nil && !h.escapes && !h.released:
			c.report(h.call.Pos(), "%s is never released: the lock stays taken until the client's Shutdown", h.v.Name())
		case h.declared && h.err != nil:
			if at := c.leak(h, flow); at.IsValid() {
				c.report(h.call.Pos(), "%s is not released if the function returns at line %d", h.v.Name(), c.Fset.Position(at).Line)
			}
		}
	})
}

// holds calls fn for every call of Lock and TryLock whose result the check can follow.
func (c *check) holds(fn func(hold)) {
	for _, file := range c.files {
		for _, decl := range file.Decls {
			outer, ok := decl.(*ast.FuncDecl)
			if !ok || outer.Body == nil {
				continue
			}
			c.holdsIn(outer, fn)
		}
	}
}

func (c *check) holdsIn(outer *ast.FuncDecl, fn func(hold)) {
	var around []ast.Node
	ast.Inspect(outer, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		around = append(around, n)
		h := hold{outer: outer, used: map[string]bool{}}
		for _, a := range around {
			switch a.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				h.fn = a
			}
		}
		switch n := n.(type) {
		case *ast.ExprStmt:
			if h.call = c.lockCall(n.X); h.call != nil {
				h.dropped = true
				fn(h)
			}
		case *ast.AssignStmt:
			if len(n.Rhs) == 1 && len(n.Lhs) == 2 {
				c.assigned(h, n.Lhs[0], n.Lhs[1], n.Rhs[0], fn)
			}
		case *ast.ValueSpec:
			if len(n.Values) == 1 && len(n.Names) == 2 {
				c.assigned(h, n.Names[0], n.Names[1], n.Values[0], fn)
			}
		}
		return true
	})
}

func (c *check) lockCall(e ast.Expr) *ast.CallExpr {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return nil
	}
	if m := method(c.info, call, library+".Client."); m != "Lock" && m != "TryLock" {
		return nil
	}
	return call
}

func (c *check) assigned(h hold, to, toErr, from ast.Expr, fn func(hold)) {
	if h.call = c.lockCall(from); h.call == nil {
		return
	}
	if id, ok := toErr.(*ast.Ident); ok {
		h.noError = id.Name == "_"
		h.err, _ = c.info.ObjectOf(id).(*types.Var)
	}
	id, ok := to.(*ast.Ident)
	switch {
	case !ok:
		h.escapes = true // to a field or an element
	case id.Name == "_":
		h.dropped = true
	default:
		h.v, _ = c.info.ObjectOf(id).(*types.Var)
		h.declared = c.info.Defs[id] != nil
		h.escapes = h.v == nil || !within(h.v, h.fn) || c.isResult(h.v, h.fn)
		c.follow(&h)
	}
	fn(h)
}

func (c *check) isResult(v *types.Var, fn ast.Node) bool {
	typ := funcType(fn)
	return typ.Results != nil && within(v, typ.Results)
}

func funcType(fn ast.Node) *ast.FuncType {
	switch fn := fn.(type) {
	case *ast.FuncDecl:
		return fn.Type
	case *ast.FuncLit:
		return fn.Type
	}
	return &ast.FuncType{}
}

// follow finds out what is done with the variable: every use other than a call of a method, a
// comparison and an assignment to it counts as an escape.
func (c *check) follow(h *hold) {
	known := map[*ast.Ident]bool{}
	ast.Inspect(h.outer, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && c.info.Uses[id] == h.v {
				known[id] = true
				h.used[n.Sel.Name] = true
				h.released = h.released || n.Sel.Name == "Release"
			}
		case *ast.BinaryExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				known[id] = true
			}
			if id, ok := n.Y.(*ast.Ident); ok {
				known[id] = true
			}
		case *ast.AssignStmt:
			for _, lhs := range n.Lhs {
				if id, ok := lhs.(*ast.Ident); ok {
					known[id] = true
				}
			}
			if len(n.Lhs) == 1 && len(n.Rhs) == 1 { // _ = hold does not pass it on
				if to, ok := n.Lhs[0].(*ast.Ident); ok && to.Name == "_" {
					if id, ok := n.Rhs[0].(*ast.Ident); ok {
						known[id] = true
					}
				}
			}
		case *ast.Ident:
			h.escapes = h.escapes || c.info.Uses[n] == h.v && !known[n]
		}
		return true
	})
}

// shutsDown reports whether a function calls a client's Shutdown, which releases all holds.
func (c *check) shutsDown(fn ast.Node) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			f, _ := c.info.Uses[s.Sel].(*types.Func)
			found = found || key(f) == library+".Client.Shutdown"
		}
		return !found
	})
	return found
}

// leak returns the position of a return that a path reaches from a successful Lock although nothing on
// it releases the hold, passes it on, or asks whether it is lost.
func (c *check) leak(h hold, flow *ctrlflow.CFGs) token.Pos {
	var graph *cfg.CFG
	switch fn := h.fn.(type) {
	case *ast.FuncDecl:
		graph = flow.FuncDecl(fn)
	case *ast.FuncLit:
		graph = flow.FuncLit(fn)
	}
	if graph == nil || c.usedInEarlierFunction(h) {
		return token.NoPos
	}
	type visit struct {
		block *cfg.Block
		err   *types.Var // nil once it has the error of something else
	}
	seen := map[visit]bool{}
	var walk func(b *cfg.Block, from int, err *types.Var) token.Pos
	walk = func(b *cfg.Block, from int, err *types.Var) token.Pos {
		for _, n := range b.Nodes[from:] {
			if c.handles(n, h.v) {
				return token.NoPos
			}
			if ret, ok := n.(*ast.ReturnStmt); ok {
				return ret.Pos()
			}
			if assigns(c.info, n, err) {
				err = nil
			}
		}
		succs := b.Succs
		if n := len(b.Nodes); n > 0 && len(succs) == 2 { // range, select and a switch of types branch without a condition
			if cond, ok := b.Nodes[n-1].(ast.Expr); ok {
				succs = c.succeeded(cond, h.v, err, succs)
			}
		}
		for _, next := range succs {
			if v := (visit{next, err}); !seen[v] {
				seen[v] = true
				if at := walk(next, 0, err); at.IsValid() {
					return at
				}
			}
		}
		return token.NoPos
	}
	for _, b := range graph.Blocks {
		for i, n := range b.Nodes {
			if n.Pos() <= h.call.Pos() && h.call.End() <= n.End() {
				return walk(b, i+1, h.err)
			}
		}
	}
	return token.NoPos
}

// reads are the methods of a hold that neither release it nor say whether it is lost.
var reads = map[string]bool{"GoString": true, "Lease": true, "Name": true, "Slot": true, "String": true, "Token": true}

// handles reports whether after a node the lock may be released, lost, or somebody else's matter. A
// hold that is only read, compared with nil, or whose context is passed to a call, is held as before.
func (c *check) handles(n ast.Node, v *types.Var) (found bool) {
	_, statement := n.(ast.Stmt) // a condition with the context can say that the lock is lost
	switch n.(type) {
	case *ast.GoStmt, *ast.DeferStmt: // the function can release the hold of its context
		statement = false
	}
	ast.PreorderStack(n, nil, func(n ast.Node, around []ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || found {
			return !found
		}
		if of, ok := c.info.Uses[id].(*types.Var); ok && of.Pkg() != nil && of.Pkg().Path() == library && of.Name() == "ErrLost" {
			found = true
		}
		if !uses(c.info, v)(id) {
			return true
		}
		switch parent := at(around, 1).(type) {
		case *ast.SelectorExpr:
			call, isCall := at(around, 3).(*ast.CallExpr)
			found = !reads[parent.Sel.Name] && (parent.Sel.Name != "Context" || !statement || !isCall || c.derives(call))
		case *ast.BinaryExpr:
			found = !isNil(parent.X) && !isNil(parent.Y)
		case *ast.AssignStmt:
			to, ok := parent.Lhs[0].(*ast.Ident)
			found = !ok || len(parent.Lhs) > 1 || to.Name != "_"
		default:
			found = true
		}
		return true
	})
	return found
}

// at returns the n-th of the nodes around, from the innermost; nil if there are fewer.
func at(around []ast.Node, n int) ast.Node {
	if len(around) < n {
		return nil
	}
	return around[len(around)-n]
}

func isNil(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && id.Name == "nil"
}

// derives reports whether a call can return a context that is made of another one, or what one says.
func (c *check) derives(call *ast.CallExpr) bool {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if f := c.info.Uses[s.Sel]; f != nil && f.Pkg() != nil && f.Pkg().Path() == "context" {
			return true
		}
	}
	switch result := c.info.TypeOf(call).(type) {
	case *types.Tuple:
		for v := range result.Variables() {
			if isContext(v.Type()) {
				return true
			}
		}
		return false
	default:
		return isContext(result)
	}
}

// succeeded returns those of two branches that are taken when err is nil and the hold is not, if that
// is certain.
func (c *check) succeeded(cond ast.Expr, hold, err *types.Var, succs []*cfg.Block) []*cfg.Block {
	if equal, ok := ast.Unparen(cond).(*ast.BinaryExpr); ok && mentions(cond, uses(c.info, hold)) && (isNil(equal.X) || isNil(equal.Y)) {
		switch equal.Op {
		case token.EQL: // hold == nil
			return succs[1:]
		case token.NEQ: // hold != nil
			return succs[:1]
		}
	}
	if !mentions(cond, uses(c.info, err)) {
		return succs
	}
	switch cond := ast.Unparen(cond).(type) {
	case *ast.BinaryExpr:
		switch cond.Op {
		case token.EQL: // err == nil
			return succs[:1]
		case token.NEQ: // err != nil
			return succs[1:]
		}
	case *ast.CallExpr: // errors.Is(err, …)
		return succs[1:]
	}
	return nil
}

func assigns(info *types.Info, n ast.Node, v *types.Var) bool {
	a, ok := n.(*ast.AssignStmt)
	if !ok {
		return false
	}
	for _, lhs := range a.Lhs {
		if id, ok := lhs.(*ast.Ident); ok && info.ObjectOf(id) == v {
			return true
		}
	}
	return false
}

// usedInEarlierFunction reports whether a function literal before the call uses the hold, such
// as a deferred one that releases it.
func (c *check) usedInEarlierFunction(h hold) (found bool) {
	ast.Inspect(h.outer, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && lit.End() < h.call.Pos() && mentions(lit, uses(c.info, h.v)) {
			found = true
		}
		return !found
	})
	return found
}
