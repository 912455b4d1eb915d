package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// A connection can report the deadline that the context of an earlier call has set on it, while the present context goes on.
func TestTimeoutOfAConnectionIsADeadline(t *testing.T) {
	l := &Locker{config: config{timeout: time.Second}, calls: driverutil.NewCalls()}
	err := fmt.Errorf("failed to deallocate: %w", &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
	if got := l.explain(t.Context(), t.Context(), err); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("%v is explained by %v, which wraps no %v", err, got, context.DeadlineExceeded)
	}
}

// A row that the server does not write, although nobody else changes it, is an error that lasts. It is not said that somebody
// changes it, and nothing is repeated until a deadline.
func TestARowThatIsNotWritten(t *testing.T) {
	t.Parallel()
	const ignore = `CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`
	for name, make := range map[string]string{
		"no update":    ignore + `; CREATE TRIGGER ignore BEFORE UPDATE ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION ignore()`,
		"no insertion": ignore + `; CREATE TRIGGER ignore BEFORE INSERT ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION ignore()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := postgrestest.URL(t)
			l := open(t, at)
			held := acquire(t, l, request("held", "a"))
			if err := l.Release(bounded(t), acquire(t, l, request("free", "a"))); err != nil {
				t.Fatal(err)
			}
			run(t, client(t, at), make)
			lock := map[string]string{"no update": "free", "no insertion": "new"}[name]
			_, err := l.TryAcquire(bounded(t), request(lock, "b"))
			wantError(t, err, driver.ErrDenied, "row-level security", "triggers", lock)
			if name == "no update" {
				wantError(t, l.WriteData(bounded(t), held, []byte("x"), driver.DataRevision{Token: held.Token}), driver.ErrDenied, "triggers")
			}
		})
	}
}

// Others that change the row between two tries are no reason to give up early.
func TestARowThatOthersChange(t *testing.T) {
	t.Parallel()
	var rows unwrittenRows
	for i, version := range []string{"a", "a", "b", "b", "", "", "a", "a"} {
		if err := rows.note(&unwritten{version}); driver.Lasting(err) || !errors.Is(err, errChanging) {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if err := rows.note(&unwritten{"a"}); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("the third of one version: %v", err)
	}
	_ = rows.note(nil)
	if err := rows.note(&unwritten{"a"}); driver.Lasting(err) {
		t.Errorf("the first after another result: %v", err)
	}
}
