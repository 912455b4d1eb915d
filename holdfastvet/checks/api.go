package checks

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// The packages that the checks know by name.
const (
	library   = "github.com/holdfast-go/holdfast"
	mongoSDK  = "go.mongodb.org/mongo-driver/v2/mongo"
	azureSDK  = "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	pgxSDK    = "github.com/jackc/pgx/v5"
	collector = mongoSDK + ".Collection."
)

// A callback is a parameter of the library's API to which a program gives a function.
type callback struct {
	arg  int    // its position among the arguments
	text string // how messages name the function
	// leads: the function is the work under the lock, and its context ends with the lock.
	leads bool
}

// callbacks has the functions of the library that take one, by their key.
var callbacks = map[string]callback{
	library + ".Client.Do":                         {2, "the function given to Client.Do", true},
	library + ".Client.TryDo":                      {2, "the function given to Client.TryDo", true},
	library + ".Client.DoAll":                      {2, "the function given to Client.DoAll", true},
	library + ".LeaderAwareRunner.Run":             {1, "the task", true},
	library + ".LeaderAwareRunner.RunTaskOnLeader": {1, "the task", true},
	library + "/partitions.New":                    {3, "the function of Partitions", true},
	library + "/adapters/gocronlock.Locker.Task":   {1, "the task", true},
	library + "/adapters/gocronlock.Elector.Task":  {0, "the task", true},
	library + "/adapters/cronlock.Jobs.Func":       {1, "the job", true},
	library + ".WithObserver":                      {0, "an observer", false},
	library + ".WithOverrunHook":                   {0, "an overrun hook", false},
	library + ".WithHealthCheck":                   {1, "a health check", false},
}

// mongoWrites are the methods of a collection that change documents, with the positions of the
// filter and the update among the arguments, or 0.
var mongoWrites = map[string]struct{ filter, update int }{
	"InsertOne": {0, 0}, "InsertMany": {0, 0}, "BulkWrite": {0, 0},
	"UpdateOne": {1, 2}, "UpdateMany": {1, 2}, "UpdateByID": {0, 2}, "ReplaceOne": {1, 2},
	"FindOneAndUpdate": {1, 2}, "FindOneAndReplace": {1, 2},
	"DeleteOne": {1, 0}, "DeleteMany": {1, 0}, "FindOneAndDelete": {1, 0},
}

// blobWrites are the methods of a block blob's client that change the blob.
var blobWrites = map[string]bool{
	azureSDK + "/blockblob.Client.Upload": true, azureSDK + "/blockblob.Client.UploadBuffer": true,
	azureSDK + "/blockblob.Client.UploadFile": true, azureSDK + "/blockblob.Client.UploadStream": true,
	azureSDK + "/blockblob.Client.CommitBlockList": true, azureSDK + "/blockblob.Client.SetMetadata": true,
	azureSDK + "/blockblob.Client.Delete": true,
}

// sqlWrites are methods that run statements outside of a transaction that the program has begun.
var sqlWrites = map[string]bool{
	pgxSDK + "/pgxpool.Pool.Exec": true, pgxSDK + "/pgxpool.Pool.SendBatch": true, pgxSDK + "/pgxpool.Pool.CopyFrom": true,
	pgxSDK + "/pgxpool.Conn.Exec": true, pgxSDK + "/pgxpool.Conn.SendBatch": true, pgxSDK + "/pgxpool.Conn.CopyFrom": true,
	pgxSDK + ".Conn.Exec": true, pgxSDK + ".Conn.SendBatch": true, pgxSDK + ".Conn.CopyFrom": true,
	"database/sql.DB.Exec": true, "database/sql.DB.ExecContext": true, "database/sql.Conn.ExecContext": true,
}

// withContext has functions that wait for something and have a variant that takes a context.
var withContext = map[string]string{
	"database/sql.DB.Exec": "ExecContext", "database/sql.DB.Query": "QueryContext", "database/sql.DB.QueryRow": "QueryRowContext",
	"database/sql.DB.Begin": "BeginTx", "database/sql.DB.Ping": "PingContext", "database/sql.DB.Prepare": "PrepareContext",
	"database/sql.Tx.Exec": "ExecContext", "database/sql.Tx.Query": "QueryContext", "database/sql.Tx.QueryRow": "QueryRowContext",
	"net/http.Get": "NewRequestWithContext", "net/http.Post": "NewRequestWithContext", "net/http.PostForm": "NewRequestWithContext",
	"net/http.Head": "NewRequestWithContext", "net/http.NewRequest": "NewRequestWithContext",
	"net/http.Client.Get": "NewRequestWithContext", "net/http.Client.Post": "NewRequestWithContext",
	"net/http.Client.PostForm": "NewRequestWithContext", "net/http.Client.Head": "NewRequestWithContext",
	"os/exec.Command": "CommandContext", "net.Dial": "Dialer.DialContext", "net.DialTimeout": "Dialer.DialContext",
}

// key names a function or method: its package, the type of its receiver, and its name.
func key(fn *types.Func) string {
	if fn == nil || fn.Pkg() == nil {
		return ""
	}
	name := fn.Name()
	if recv := fn.Signature().Recv(); recv != nil {
		t := recv.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		named, ok := types.Unalias(t).(*types.Named)
		if !ok {
			return ""
		}
		name = named.Obj().Name() + "." + name
	}
	return fn.Pkg().Path() + "." + name
}

// callee returns the key of the function that a call calls, or "".
func callee(info *types.Info, call *ast.CallExpr) string {
	fn, _ := typeutil.Callee(info, call).(*types.Func)
	return key(fn)
}

// method returns the name of the method if a call calls one of a type that is given as
// "package.Type.", or "".
func method(info *types.Info, call *ast.CallExpr, of string) string {
	name, ok := strings.CutPrefix(callee(info, call), of)
	if !ok {
		return ""
	}
	return name
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context" && named.Obj().Name() == "Context"
}

// isFence reports whether an expression is a Fence of one of the drivers.
func isFence(info *types.Info, e ast.Expr) bool {
	t := info.TypeOf(e)
	if t == nil {
		return false
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Name() == "Fence" && strings.HasPrefix(named.Obj().Pkg().Path(), library+"/drivers/")
}
