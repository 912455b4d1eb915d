package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"golang.org/x/sys/windows"
)

// errNoRight is the error of a file that this user may not open.
var errNoRight = noteDenied(windows.ERROR_ACCESS_DENIED)

// What a person must change is denied, at once and certainly. A refused rename is not: another process
// that reads the record causes it.
func TestDenied(t *testing.T) {
	for cause, denied := range map[error]bool{
		windows.ERROR_DISK_FULL: true, windows.ERROR_WRITE_PROTECT: true, windows.ERROR_DISK_QUOTA_EXCEEDED: true,
		noteDenied(windows.ERROR_ACCESS_DENIED): true, windows.ERROR_ACCESS_DENIED: false, windows.ERROR_SHARING_VIOLATION: false,
	} {
		l, _ := freshLocker(t)
		l.disk.sync = func(*os.File) error { return fmt.Errorf("sync: %w", cause) }
		if _, err := l.TryAcquire(t.Context(), request("first")); errors.Is(err, driver.ErrDenied) != denied || !errors.Is(err, cause) {
			t.Errorf("%v before the record is replaced: %v", cause, err)
		}
		l.disk.open = func(context.Context, string, int) (*os.File, error) { return nil, cause }
		if _, err := l.Inspect(t.Context(), "n"); errors.Is(err, driver.ErrDenied) != denied {
			t.Errorf("%v of a record that is read: %v", cause, err)
		}
	}
}
