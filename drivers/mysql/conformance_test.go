package mysql

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const (
	leastUser     = "least"
	leastPassword = "mysql-least-password"
)

// makeUser makes a user with rights on the table of the locks, and returns its URL.
func makeUser(t *testing.T, s *mysqltest.Server, rights string) (rawURL string) {
	t.Helper()
	admin := pool(t, s.AdminURL())
	run(t, admin, "CREATE USER "+leastUser+" IDENTIFIED BY '"+leastPassword+"'", "GRANT "+rights+" ON app.holdfast_locks TO "+leastUser)
	return "mysql://" + leastUser + ":" + leastPassword + "@" + s.Addr() + "/" + mysqltest.Database
}

// leastRights are those of the page, on a table that somebody else has made.
const leastRights = "SELECT, INSERT, UPDATE"

// forgets removes the record of a lock. On a node of a cluster a write of another one, such as a cleanup, can be faster.
func forgets(admin *sql.DB) func(ctx context.Context, name string) error {
	return func(ctx context.Context, name string) (err error) {
		for range 10 {
			_, err = admin.ExecContext(ctx, "DELETE FROM holdfast_locks WHERE name = ?", lockrecord.Key(name))
			if !hasCode(err, codeDeadlock) {
				break
			}
		}
		return err
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	admin := pool(t, s.AdminURL())
	run(t, admin, Schema)
	at := makeUser(t, s, leastRights)
	lockertest.Run(t, lockertest.Config{
		New:    func(t *testing.T) driver.Locker { return openAt(t, at) },
		Forget: forgets(admin),
		Stall: func(context.Context, string) (func(), error) {
			return func() { _ = s.Resume() }, s.Pause()
		},
		Deny: func(context.Context, string) (func(), error) {
			run(t, admin, "REVOKE "+leastRights+" ON holdfast_locks FROM "+leastUser)
			return func() { run(t, admin, "GRANT "+leastRights+" ON holdfast_locks TO "+leastUser) }, nil
		},
		Damage: func(ctx context.Context, name string) (func(), error) {
			var whole []byte
			err := admin.QueryRowContext(ctx, "SELECT value FROM holdfast_locks WHERE name = ?", lockrecord.Key(name)).Scan(&whole)
			set := func(value []byte) error {
				_, err := admin.ExecContext(context.WithoutCancel(ctx), "UPDATE holdfast_locks SET value = ? WHERE name = ?", value,
					lockrecord.Key(name))
				return err
			}
			if err == nil {
				err = set(whole[:len(whole)/2])
			}
			return func() { _ = set(whole) }, err
		},
		Secrets: []string{leastPassword, mysqltest.AppPassword, mysqltest.AdminPassword},
		Without: []string{"FailOver"},
	})
}

// The suite again, over writes that lose their answers.
func TestConformanceWithLostAnswers(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	admin := pool(t, s.AdminURL())
	var opened atomic.Uint64
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			inner := storeAt(t, s.URL())
			l, err := cas.Open(t.Context(), castest.Faulty(t, inner, castest.LostAnswers(opened.Add(1))), cas.Config{Info: inner.info(),
				ProbeRounds: -1})
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Forget:  forgets(admin),
		Without: []string{"Damage", "Deny", "FailOver", "Stall"},
	})
}
