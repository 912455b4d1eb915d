package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// A connection can report the deadline that the context of an earlier call has set on it, while the present context goes on.
func TestTimeoutOfAConnectionIsADeadline(t *testing.T) {
	l := &Locker{config: config{timeout: time.Second}, calls: driverutil.NewCalls()}
	err := fmt.Errorf("failed to deallocate: %w", &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
	if got := l.explain(t.Context(), t.Context(), err); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("%v is explained by %v, which wraps no %v", err, got, context.DeadlineExceeded)
	}
}
