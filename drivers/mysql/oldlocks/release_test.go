package oldlocks

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

// silent is a server that grants a lock, and answers no later statement that it executes.
type silent struct{ executed int }

var errNone = errors.New("not part of this server")

func (s *silent) Connect(context.Context) (sqldriver.Conn, error) { return s, nil }
func (s *silent) Driver() sqldriver.Driver                        { return nil }
func (s *silent) Prepare(string) (sqldriver.Stmt, error)          { return nil, errNone }
func (s *silent) Close() error                                    { return nil }
func (s *silent) Begin() (sqldriver.Tx, error)                    { return nil, errNone }

func (s *silent) ExecContext(ctx context.Context, _ string, _ []sqldriver.NamedValue) (sqldriver.Result, error) {
	if s.executed++; s.executed == 1 { // the time limit of the session
		return sqldriver.RowsAffected(0), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *silent) QueryContext(_ context.Context, statement string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return &ones{columns: 1 + strings.Count(statement, "IS_FREE_LOCK")}, nil
}

// ones is a row of ones.
type ones struct {
	columns int
	read    bool
}

func (o *ones) Columns() []string { return make([]string, o.columns) }
func (o *ones) Close() error      { return nil }

func (o *ones) Next(row []sqldriver.Value) error {
	if o.read {
		return io.EOF
	}
	o.read = true
	for i := range row {
		row[i] = int64(1)
	}
	return nil
}

// A renewal that waits while another one hangs is lost at once when the release begins. It does not wait for the release, which keeps the
// connection for good.
func TestRenewalThatMeetsARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&silent{})
		l, err := NewGetLock(db)
		if err != nil {
			t.Fatal(err)
		}
		claim := migrating.Claim{Name: "job", Proof: strings.Repeat("a", 32), TTL: time.Minute}
		if err := l.Acquire(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		within := func(limit time.Duration, call func(context.Context, migrating.Claim) error) (ended chan error) {
			ended = make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				ended <- call(ctx, claim)
			}()
			synctest.Wait()
			return ended
		}
		hangs, waits := within(30*time.Second, l.Renew), within(30*time.Second, l.Renew)
		began := time.Now()
		released := within(time.Second, l.Release)
		if err := <-waits; !errors.Is(err, driver.ErrLost) || time.Since(began) != 0 {
			t.Errorf("the renewal ended %v after the release began: %v", time.Since(began), err)
		}
		if err := <-released; err == nil || time.Since(began) > time.Second {
			t.Errorf("the release ended after %v: %v", time.Since(began), err)
		}
		if err := <-hangs; err == nil {
			t.Error("a renewal without an answer")
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
