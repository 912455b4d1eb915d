package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// LockContext reports work under a lock that does not see the loss of the lock.
var LockContext = newAnalyzer("lockcontext", `report work under a lock that ignores the lock's context

The context that Client.Do and a LeaderAwareRunner give to their function ends when the lock is
lost, and the function must then stop. The check reports a function that passes another context
to what it calls, or that ignores its context although it calls functions that could use one, or
loops without end. It also reports a Hold of Lock or TryLock whose loss nobody can notice.`, lockContext)

func lockContext(c *check) {
	c.bodies(func(b body) {
		if !b.to.leads {
			return
		}
		own := b.context(c.info)
		if own == nil || !mentions(b.block, uses(c.info, own)) {
			if why := c.deaf(b); why != "" {
				c.report(b.arg.Pos(), "%s ignores its context, which ends when the lock is lost: %s", b.to.text, why)
			}
			return
		}
		if b.declared {
			return // it has no variables of an outer function
		}
		c.walkWork(b, own, func(call *ast.CallExpr) {
			for _, arg := range call.Args {
				if id, ok := ast.Unparen(arg).(*ast.Ident); ok && c.isOuterContext(b, id) {
					c.report(id.Pos(), "%s passes on %s of the function around it: what it calls goes on when the lock is lost; pass on %s, or use "+
						"context.WithoutCancel",
						b.to.text, id.Name, own.Name())
				}
			}
		})
	})
	if !c.observes() {
		c.holds(func(h hold) { c.unwatched(h) })
	}
}

// deaf says how a function that does not use its context shows that it should; "" if it does
// not show it.
func (c *check) deaf(b body) (why string) {
	note := func(text string) {
		if why == "" {
			why = text
		}
	}
	c.walkWork(b, nil, func(call *ast.CallExpr) {
		name := types.ExprString(call.Fun)
		for _, arg := range call.Args {
			switch arg := ast.Unparen(arg).(type) {
			case *ast.Ident:
				if c.isOuterContext(b, arg) {
					note("it passes " + arg.Name + " to " + name)
				}
			case *ast.CallExpr:
				if k := callee(c.info, arg); k == "context.Background" || k == "context.TODO" {
					note("it passes " + types.ExprString(arg) + " to " + name)
				}
			}
		}
		if variant, ok := withContext[callee(c.info, call)]; ok {
			note("use " + variant + " instead of " + name)
		}
	})
	ast.Inspect(b.block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt:
			if n.Cond == nil && !endsByItself(n) {
				note("it loops without end")
			}
		}
		return true
	})
	return why
}

// endsByItself reports whether a loop without a condition has a way out.
func endsByItself(loop *ast.ForStmt) (ends bool) {
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			ends = true
		case *ast.BranchStmt:
			ends = ends || n.Tok != token.CONTINUE
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" {
				ends = true
			}
		}
		return true
	})
	return ends
}

func (c *check) isOuterContext(b body, id *ast.Ident) bool {
	v, ok := c.info.Uses[id].(*types.Var)
	return ok && isContext(v.Type()) && !within(v, b.node) && !c.sets(b, v)
}

// sets reports whether a body assigns to a variable, which then can have the body's own context.
func (c *check) sets(b body, v *types.Var) (found bool) {
	ast.Inspect(b.block, func(n ast.Node) bool {
		found = found || assigns(c.info, n, v)
		return !found
	})
	return found
}

// Calls that are right with another context: they clean up, log, or only read a value.
var (
	cleanupNames = []string{"Release", "Shutdown", "Close", "Rollback", "AbortTransaction", "EndSession", "Disconnect", "StepDown", "Unlock",
		"Stop"}
	harmless = []string{"context.WithoutCancel", "context.Cause", "context.AfterFunc",
		library + ".TokenFromContext", library + ".HoldFromContext", library + ".Heartbeat"}
)

// walkWork calls fn for the calls of a body that are part of its work. It leaves out deferred
// calls and those of other goroutines, cleanup, and what is done only if something failed or the
// body's own context has ended: another context is right there.
func (c *check) walkWork(b body, own types.Object, fn func(*ast.CallExpr)) {
	ended := func(n ast.Node) bool {
		return mentions(n, func(id *ast.Ident) bool {
			obj := c.info.Uses[id]
			return obj != nil && (obj == own || types.Implements(obj.Type(), errorType))
		})
	}
	var walk func(n ast.Node)
	walk = func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.DeferStmt, *ast.GoStmt:
				return false
			case *ast.IfStmt:
				if n.Init != nil {
					walk(n.Init)
				}
				walk(n.Cond)
				if !ended(n.Cond) {
					walk(n.Body)
					if n.Else != nil {
						walk(n.Else)
					}
				} else if n.Else != nil {
					walk(n.Else)
				}
				return false
			case *ast.CaseClause:
				return !slices.ContainsFunc(n.List, func(e ast.Expr) bool { return ended(e) })
			case *ast.CommClause:
				return n.Comm == nil || !ended(n.Comm)
			case *ast.CallExpr:
				k := callee(c.info, n)
				if slices.Contains(harmless, k) || strings.HasPrefix(k, "log/slog.") || slices.Contains(cleanupNames, k[strings.LastIndex(k, ".")+1:]) {
					return false
				}
				fn(n)
			}
			return true
		})
	}
	walk(b.block)
}

var errorType, _ = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// observes reports whether the package has an observer or an overrun hook, which can end the work.
func (c *check) observes() bool {
	for _, obj := range c.info.Uses {
		if fn, ok := obj.(*types.Func); ok {
			if k := key(fn); k == library+".WithObserver" || k == library+".WithOverrunHook" {
				return true
			}
		}
	}
	return false
}

// unwatched reports a hold that is used for its release alone, while other calls get a context:
// none of them can notice that the lock is lost.
func (c *check) unwatched(h hold) {
	if h.v == nil || h.escapes || !h.released || h.used["Context"] || h.used["Err"] || h.used["LostIn"] || h.used["ExpiresIn"] ||
		h.used["Token"] || h.used["Lease"] || h.used["WriteData"] || h.used["UpdateData"] || len(h.call.Args) > 2 {
		return
	}
	var work *ast.CallExpr
	ast.Inspect(h.fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Pos() <= h.call.End() || work != nil {
			return true
		}
		k := callee(c.info, call)
		if slices.Contains(harmless, k) || strings.HasPrefix(k, "context.") || strings.HasPrefix(k, "log/slog.") ||
			strings.HasPrefix(k, library) || slices.Contains(cleanupNames, k[strings.LastIndex(k, ".")+1:]) {
			return true
		}
		for _, arg := range call.Args {
			if id, ok := ast.Unparen(arg).(*ast.Ident); ok && isContext(c.info.TypeOf(id)) && isSame(c.info, id, h.call.Args[0]) {
				work = call
			}
		}
		return true
	})
	if work != nil {
		c.report(h.call.Pos(), "the loss of %s is never noticed: %s gets the context that bounded the waiting; derive its context from "+
			"%s.Context()",
			h.v.Name(), types.ExprString(work.Fun), h.v.Name())
	}
}

func isSame(info *types.Info, id *ast.Ident, e ast.Expr) bool {
	other, ok := ast.Unparen(e).(*ast.Ident)
	return ok && info.Uses[id] != nil && info.Uses[id] == info.Uses[other]
}
