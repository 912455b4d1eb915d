package rivals

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	_ "github.com/holdfast-go/holdfast/drivers/mysql"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

func mysqlDB(user, password, at string) (*sql.DB, error) {
	return sql.Open("mysql", user+":"+password+"@tcp("+at+")/"+mysqltest.Database)
}

// admin makes a statement as the user who may do everything.
func mysqlAdmin(ctx context.Context, at, statement string) error {
	db, err := mysqlDB(mysqltest.AdminUser, mysqltest.AdminPassword, at)
	if err == nil {
		_, err = db.ExecContext(ctx, statement)
	}
	return err
}

var mysqlRivals = &comparison{
	names: []string{"Holdfast", "GET_LOCK"},
	rivals: map[string]rivalIn{
		"Holdfast": {take: holdfastOn(mysqltest.At), lose: func(ctx context.Context, at string) error {
			return mysqlAdmin(ctx, at, "DELETE FROM holdfast_locks WHERE name = '"+name+"'")
		}},
		// The session has the lock. A program that asks nothing is not notified when the session ends.
		"GET_LOCK": {
			take: func(ctx context.Context, at string) (func(context.Context) (taken, error), error) {
				db, err := mysqlDB(mysqltest.AppUser, mysqltest.AppPassword, at)
				if err != nil {
					return nil, err
				}
				conn, err := db.Conn(ctx)
				return func(ctx context.Context) (taken, error) {
					var got sql.NullInt64
					err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 3600)").Scan(&got)
					if err == nil && got.Int64 != 1 {
						err = fmt.Errorf("GET_LOCK: %v", got)
					}
					return taken{func() <-chan struct{} { return make(chan struct{}) }, func(ctx context.Context) error {
						_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK('"+name+"')")
						return err
					}}, err
				}, err
			},
			lose: func(ctx context.Context, at string) error {
				db, err := mysqlDB(mysqltest.AdminUser, mysqltest.AdminPassword, at)
				var holder int64
				if err == nil {
					err = db.QueryRowContext(ctx, "SELECT IS_USED_LOCK('"+name+"')").Scan(&holder)
				}
				if err == nil {
					_, err = db.ExecContext(ctx, fmt.Sprintf("KILL %d", holder))
				}
				return err
			},
		},
	},
	start: func(b *testing.B) string { b.Helper(); return mysqltest.Start(b, mysqltest.Options{}).Addr() },
	url:   mysqltest.At,
}

// BenchmarkMySQLRivals prints two tables.
func BenchmarkMySQLRivals(b *testing.B) {
	mysqlRivals.run(b)
	nodes := mysqltest.StartGalera(b, 2)
	fmt.Println("| | holders at two nodes of Galera |")
	for _, n := range mysqlRivals.names {
		holders := 0
		for _, node := range nodes {
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			take, err := mysqlRivals.rivals[n].take(ctx, node.Addr())
			if err != nil {
				b.Error(n, err)
			} else if _, err = take(ctx); err == nil {
				holders++
			}
			cancel()
		}
		fmt.Println("|", n, "|", holders, "|")
	}
}
