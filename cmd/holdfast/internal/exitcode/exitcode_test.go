package exitcode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The exit code says what has happened, also for an error without a code of its own, such as that of "data set".
func TestOf(t *testing.T) {
	for want, err := range map[int]error{
		Usage:       fmt.Errorf("open: %w", driver.Invalid("URL", "x", "a URL")),
		Held:        fmt.Errorf("lock: %w", &driver.HeldError{}),
		Lost:        fmt.Errorf("write the data: %w", holdfast.ErrLost),
		Unavailable: errors.New("no answer"),
		Declined:    fmt.Errorf("break: %w", With(Declined, holdfast.ErrLost)),
	} {
		if got := Of(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
