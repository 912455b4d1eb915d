package checks

import (
	"go/ast"
	"go/types"
)

// LockTransaction reports locks that end before the transaction around them.
var LockTransaction = newAnalyzer("locktransaction", `report a lock that is taken inside a transaction

A lock that is taken and released inside a transaction is free before the commit: its next holder can read what was
there before, and an earlier snapshot does not show what the last holder wrote. The check reports Client.Do, TryDo and
DoAll, and Lock and TryLock whose hold is released there, in a function given to WithTransaction of a
MongoDB session, pgx.BeginFunc, pgx.BeginTxFunc, or a guard or fence of this library.`, lockTransaction)

// transactions has the functions that run another one in a transaction, with the position of that one among the arguments.
var transactions = map[string]int{
	mongoSDK + ".Session.WithTransaction":  1,
	pgxSDK + ".BeginFunc":                  2,
	pgxSDK + ".BeginTxFunc":                3,
	library + "/drivers/mongo.Guard.Do":    2,
	library + "/drivers/postgres.Guard.Do": 2,
	library + "/drivers/postgres.Fence.Do": 2,
}

func lockTransaction(c *check) {
	ends := map[*ast.CallExpr]bool{} // calls whose hold is released in the function that makes them
	c.holds(func(h hold) { ends[h.call] = h.released && !h.escapes })
	c.calls(func(call *ast.CallExpr, outer *ast.FuncDecl) {
		at, ok := transactions[callee(c.info, call)]
		if !ok || at >= len(call.Args) {
			return
		}
		b := body{call: call, arg: ast.Unparen(call.Args[at]), outer: outer}
		if !c.resolve(&b) {
			return
		}
		c.sync(b.block, func(inner *ast.CallExpr) {
			m := method(c.info, inner, library+".Client.")
			if m == "Do" || m == "TryDo" || m == "DoAll" || ends[inner] {
				c.report(inner.Pos(), "%s in a transaction: the lock is released before the commit, so its next holder can read what was "+
					"there before; begin the transaction under the lock", types.ExprString(inner.Fun))
			}
		})
	})
}
