package checks

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// LockDeadlock reports calls that wait for the function that makes them.
var LockDeadlock = newAnalyzer("lockdeadlock", `report a call that waits for the function that makes it

Shutdown waits for the functions of Client.Do, runners and Partitions, for observers, overrun hooks
and health checks. The check reports a call of Shutdown in one of them, on the same goroutine and for
the same client; a runner's Close or StepDown in its own task with another context than the task's;
a runner's Run in its own task; a lock that is taken again by the function that runs under it; and
WriteData or UpdateData in the function of UpdateData.`, lockDeadlock)

func lockDeadlock(c *check) {
	c.bodies(func(b body) {
		client, runner := c.owner(b)
		own := b.context(c.info)
		c.sync(b.block, func(call *ast.CallExpr) {
			selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
			if !ok {
				return
			}
			switch k := callee(c.info, call); k {
			case library + ".Client.Shutdown":
				if client != nil && c.same(b, selector.X, client) {
					c.report(call.Pos(), "Shutdown waits for %s, which calls it: call it on another goroutine", b.to.text)
				}
			case library + ".LeaderAwareRunner.Close", library + ".LeaderAwareRunner.StepDown":
				if b.to.leads && runner != nil && c.same(b, selector.X, runner) && c.isOther(b, call, own) {
					c.report(call.Pos(), "%s waits for the task, which calls it with another context than its own: pass the task's context",
						selector.Sel.Name)
				}
			case library + ".LeaderAwareRunner.Run", library + ".LeaderAwareRunner.RunTaskOnLeader":
				if b.to.leads && runner != nil && c.same(b, selector.X, runner) {
					c.report(call.Pos(), "%s in the runner's own task returns an error at once: tasks of one runner never overlap", selector.Sel.Name)
				}
			case library + ".Client.Do", library + ".Client.Lock", library + ".Client.TryDo", library + ".Client.TryLock",
				library + ".Client.DoAll", library + ".Client.LockAll", library + ".Client.TryLockAll":
				if name := c.again(b, call, selector.X); name != nil {
					c.report(call.Pos(), "%s never gets the lock %s, which %s holds itself", selector.Sel.Name, types.ExprString(name), b.to.text)
				}
			}
		})
	})
	c.calls(func(call *ast.CallExpr, outer *ast.FuncDecl) {
		if callee(c.info, call) == library+".Hold.UpdateData" && len(call.Args) == 2 {
			c.updates(call, outer)
		}
	})
}

// sync calls fn for the calls that a function makes on its own goroutine before it returns. Of
// function literals these are only the ones that are called or deferred where they stand.
func (c *check) sync(block *ast.BlockStmt, fn func(*ast.CallExpr)) {
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if lit, ok := ast.Unparen(n.Fun).(*ast.FuncLit); ok {
				c.sync(lit.Body, fn)
			}
			fn(n)
		}
		return true
	})
}

// owner returns the client that the library's function belongs to, and the runner; nil if unknown.
func (c *check) owner(b body) (client, runner ast.Expr) {
	var on ast.Expr
	if selector, ok := ast.Unparen(b.call.Fun).(*ast.SelectorExpr); ok {
		on = selector.X
	}
	switch {
	case strings.HasPrefix(b.key, library+".Client."):
		return on, nil
	case strings.HasPrefix(b.key, library+".LeaderAwareRunner."):
		return c.clientOf(on, b.outer), on
	case b.key == library+"/partitions.New":
		return b.call.Args[0], nil
	case strings.HasPrefix(b.key, library+".With"):
		return c.clientOfOption(b)
	}
	return nil, nil
}

// clientOf returns the client of a runner that the same function makes.
func (c *check) clientOf(runner ast.Expr, outer *ast.FuncDecl) (client ast.Expr) {
	if outer == nil {
		return nil
	}
	ast.Inspect(outer, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 && len(a.Lhs) == 2 {
			if call, ok := ast.Unparen(a.Rhs[0]).(*ast.CallExpr); ok && callee(c.info, call) == library+".NewLeaderAwareRunner" &&
				c.same(body{}, a.Lhs[0], runner) {
				client = call.Args[0]
			}
		}
		return true
	})
	return client
}

// clientOfOption returns the client, and the runner, whose constructor or method has an option as
// its argument.
func (c *check) clientOfOption(b body) (client, runner ast.Expr) {
	if b.outer == nil {
		return nil, nil
	}
	var call *ast.CallExpr // which has the option
	var to ast.Expr        // what its result is assigned to
	ast.Inspect(b.outer, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			for _, arg := range n.Args {
				if ast.Unparen(arg) == b.call {
					call = n
				}
			}
		case *ast.AssignStmt:
			if len(n.Rhs) == 1 && n.Pos() <= b.call.Pos() && b.call.End() <= n.End() {
				to = n.Lhs[0]
			}
		}
		return true
	})
	if call == nil {
		return nil, nil
	}
	switch k := callee(c.info, call); k {
	case library + ".New", library + ".Open":
		return to, nil
	case library + ".NewLeaderAwareRunner":
		return call.Args[0], to
	case library + "/leases.New", library + "/partitions.New":
		return call.Args[0], nil
	default:
		if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && strings.HasPrefix(k, library+".Client.") {
			return selector.X, nil
		}
	}
	return nil, nil
}

// isOther reports whether a call's context is surely not derived from the body's own one.
func (c *check) isOther(b body, call *ast.CallExpr, own types.Object) bool {
	if len(call.Args) != 1 {
		return false
	}
	switch arg := ast.Unparen(call.Args[0]).(type) {
	case *ast.Ident:
		return c.info.Uses[arg] != own && c.isOuterContext(b, arg)
	case *ast.CallExpr:
		k := callee(c.info, arg)
		return k == "context.Background" || k == "context.TODO"
	}
	return false
}

// again returns the name of a lock under which the body runs, and which a call takes again: the same client and the same
// constant name, and no slots. Otherwise it returns nil.
func (c *check) again(b body, call *ast.CallExpr, client ast.Expr) ast.Expr {
	m := method(c.info, b.call, library+".Client.")
	selector, ok := ast.Unparen(b.call.Fun).(*ast.SelectorExpr)
	if m != "Do" && m != "TryDo" && m != "DoAll" || !ok || len(b.call.Args) != 3 || len(call.Args) < 2 || c.slots(call) ||
		!c.same(b, client, selector.X) {
		return nil
	}
	for _, wanted := range names(call) {
		for _, held := range names(b.call) {
			one, other := c.info.Types[wanted].Value, c.info.Types[held].Value
			if one != nil && other != nil && constant.Compare(one, token.EQL, other) {
				return wanted
			}
		}
	}
	return nil
}

// names returns the expressions of the names that a call takes, as far as they stand in the call.
func names(call *ast.CallExpr) []ast.Expr {
	if list, ok := ast.Unparen(call.Args[1]).(*ast.CompositeLit); ok {
		return list.Elts
	}
	return call.Args[1:2]
}

// slots reports whether a call has options, of which one could be WithSlots.
func (c *check) slots(call *ast.CallExpr) bool {
	n := 2
	if m := method(c.info, call, library+".Client."); m == "Do" || m == "TryDo" || m == "DoAll" {
		n = 3
	}
	return len(call.Args) > n
}

// updates reports WriteData and UpdateData in the function of UpdateData.
func (c *check) updates(call *ast.CallExpr, outer *ast.FuncDecl) {
	b := body{call: call, arg: ast.Unparen(call.Args[1]), outer: outer}
	on, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || !c.resolve(&b) {
		return
	}
	c.sync(b.block, func(inner *ast.CallExpr) {
		m := method(c.info, inner, library+".Hold.")
		selector, ok := ast.Unparen(inner.Fun).(*ast.SelectorExpr)
		if ok && (m == "WriteData" || m == "UpdateData") && c.same(b, selector.X, on.X) {
			c.report(inner.Pos(), "%s waits for the update that calls it", m)
		}
	})
}
