package checks

import (
	"go/ast"
	"go/types"
	"strings"
)

// strict makes FencedWrite report every write under a lock that has no fence.
var strict bool

// FencedWrite reports fences that do not refuse a late write.
var FencedWrite = newAnalyzer("fencedwrite", `report a write that only seems to be fenced

A write in the function of a mongo.Guard is guarded only if it uses the function's context, and in that of
a postgres.Guard or postgres.Fence only if it uses the function's transaction. A write
with a mongo.Fence needs both Filter, which refuses former holders, and Mark, which stores the
token for the next comparison; one with an azblob.Fence needs both Conditions and Metadata. With
-fencedwrite.strict the check also reports every write to MongoDB or a blob that a function under a
lock makes without guard, fence or token.`, fencedWrite)

func init() {
	FencedWrite.Flags.BoolVar(&strict, "strict", false, "report every write under a lock that has no fence")
}

const mongoFence, azblobFence = library + "/drivers/mongo.Fence.", library + "/drivers/azblob.Fence"

func fencedWrite(c *check) {
	c.calls(func(call *ast.CallExpr, outer *ast.FuncDecl) {
		switch callee(c.info, call) {
		case library + "/drivers/mongo.Guard.Do":
			c.guarded(call, outer)
		case library + "/drivers/postgres.Guard.Do", library + "/drivers/postgres.Fence.Do":
			c.guardedRows(call, outer)
		case library + "/drivers/azblob.NewFence":
			c.blobFence(call, outer)
		}
		c.halfFence(call)
	})
	if strict {
		c.unfenced()
	}
}

// guardedBody is the body of the function that a call gives to a guard.
func (c *check) guardedBody(call *ast.CallExpr, outer *ast.FuncDecl) (b body, ok bool) {
	if len(call.Args) != 3 {
		return body{}, false
	}
	b = body{call: call, arg: ast.Unparen(call.Args[2]), outer: outer}
	return b, c.resolve(&b)
}

// guarded reports writes in the function of a guard that are not part of its transaction.
func (c *check) guarded(call *ast.CallExpr, outer *ast.FuncDecl) {
	b, ok := c.guardedBody(call, outer)
	if !ok {
		return
	}
	ast.Inspect(b.block, func(n ast.Node) bool {
		write, ok := n.(*ast.CallExpr)
		if !ok || len(write.Args) == 0 {
			return true
		}
		name := method(c.info, write, collector)
		if _, ok := mongoWrites[name]; !ok {
			return true
		}
		switch arg := ast.Unparen(write.Args[0]).(type) {
		case *ast.Ident:
			if c.isOuterContext(b, arg) {
				c.report(write.Pos(), "%s uses %s and not the context of the guarded function, so it is not part of the guard's transaction", name,
					arg.Name)
			}
		case *ast.CallExpr:
			if k := callee(c.info, arg); k == "context.Background" || k == "context.TODO" {
				c.report(write.Pos(), "%s uses %s and not the context of the guarded function, so it is not part of the guard's transaction", name,
					types.ExprString(arg))
			}
		}
		return true
	})
}

// guardedRows reports statements in the function of a guard that are not part of its transaction.
func (c *check) guardedRows(call *ast.CallExpr, outer *ast.FuncDecl) {
	b, ok := c.guardedBody(call, outer)
	if !ok {
		return
	}
	ast.Inspect(b.block, func(n ast.Node) bool {
		if write, ok := n.(*ast.CallExpr); ok && sqlWrites[callee(c.info, write)] {
			c.report(write.Pos(), "%s is not part of the guard's transaction: use the transaction of the guarded function",
				types.ExprString(write.Fun))
		}
		return true
	})
}

// halfFence reports an update that has one half of a mongo.Fence and surely not the other.
func (c *check) halfFence(call *ast.CallExpr) {
	name := method(c.info, call, collector)
	at := mongoWrites[name]
	if at.filter == 0 || at.update == 0 || len(call.Args) <= at.update {
		return
	}
	filter, update := call.Args[at.filter], call.Args[at.update]
	switch {
	case c.hasCall(filter, mongoFence+"Filter") && c.surelyWithout(update):
		c.report(call.Pos(), "%s compares the token and does not store it: add Fence.Mark to the update, or a former holder can write after this",
			name)
	case c.hasCall(update, mongoFence+"Mark") && c.surelyWithout(filter):
		c.report(call.Pos(), "%s stores the token and does not compare it: use Fence.Filter, or this overwrites what a later holder wrote", name)
	}
}

// hasCall reports whether an expression has a call of a function.
func (c *check) hasCall(e ast.Expr, name string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && callee(c.info, call) == name {
			found = true
		}
		return !found
	})
	return found
}

// surelyWithout reports whether an expression has no part of a fence: it is a literal with no
// mention of one, and no element whose fields are elsewhere.
func (c *check) surelyWithout(e ast.Expr) bool {
	lit, ok := ast.Unparen(e).(*ast.CompositeLit)
	if !ok {
		return false
	}
	sure := true
	ast.Inspect(lit, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			// A variable can be an element or document of its own; FenceField can be used by hand.
			if v, ok := c.info.Uses[n].(*types.Var); ok && !v.IsField() && strings.Contains(v.Type().String(), "/bson.") || n.Name == "FenceField" {
				sure = false
			}
		case *ast.BasicLit:
			if n.Value == `"fence"` {
				sure = false
			}
		case *ast.CallExpr:
			if t := c.info.TypeOf(n); t == nil || strings.Contains(t.String(), "/bson.") {
				sure = false
			}
		}
		return sure
	})
	return sure
}

// blobFence reports an azblob.Fence of which a function uses one half.
func (c *check) blobFence(call *ast.CallExpr, outer *ast.FuncDecl) {
	if outer == nil {
		return
	}
	var fence types.Object
	ast.Inspect(outer, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 && ast.Unparen(a.Rhs[0]) == call {
			if id, ok := a.Lhs[0].(*ast.Ident); ok && id.Name != "_" {
				fence = c.info.ObjectOf(id)
			}
		}
		return true
	})
	if fence == nil {
		return
	}
	used, known, escapes := map[string]bool{}, map[*ast.Ident]bool{}, false
	ast.Inspect(outer, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && c.info.Uses[id] == fence {
				known[id], used[n.Sel.Name] = true, true
			}
		case *ast.Ident:
			escapes = escapes || c.info.Uses[n] == fence && !known[n]
		}
		return true
	})
	switch {
	case escapes || used["Conditions"] == used["Metadata"]:
	case used["Conditions"]:
		c.report(call.Pos(), "the write sends %s.Conditions and not %s.Metadata: "+
			"the token is not stored, so a former holder can write after this", fence.Name(), fence.Name())
	default:
		c.report(call.Pos(), "the write sends %s.Metadata and not %s.Conditions: the service does not refuse it after a later holder's write",
			fence.Name(), fence.Name())
	}
}

// unfenced reports, with the flag strict, writes of functions under a lock that have no sign of a
// fence: no Fence, token or guard.
func (c *check) unfenced() {
	c.bodies(func(b body) {
		if !b.to.leads {
			return
		}
		ast.Inspect(b.block, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			k := callee(c.info, call)
			if k == library+"/drivers/mongo.Guard.Do" {
				return false
			}
			_, isWrite := mongoWrites[strings.TrimPrefix(k, collector)]
			if (isWrite || blobWrites[k]) && !c.hasFence(call) {
				c.report(call.Pos(), "%s is not fenced: a holder that was paused can overwrite what a later one wrote", types.ExprString(call.Fun))
			}
			return true
		})
	})
}

// hasFence reports whether an argument of a call has a fence, a token, or conditions of a lease.
func (c *check) hasFence(call *ast.CallExpr) (found bool) {
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				found = found || isFence(c.info, n) || strings.Contains(strings.ToLower(n.Name), "token")
			case *ast.CallExpr:
				k := callee(c.info, n)
				found = found || k == library+"/drivers/azblob.Conditions" || k == library+".Hold.Token"
			}
			return !found
		})
	}
	return found
}
