package file

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A nil option is an error.
func TestNilOption(t *testing.T) {
	for name, opt := range map[string]Option{"option": nil, "logger": WithLogger(nil)} {
		if _, err := New(t.TempDir(), opt); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a nil %s: %v", name, err)
		}
	}
}
