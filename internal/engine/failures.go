package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Failures collects the names of what failed and the first error, so that thousands of failures
// make one readable error.
type Failures struct {
	Names []string
	First error
}

// Add adds a failure.
func (f *Failures) Add(name string, err error) {
	if f.First == nil {
		f.First = err
	}
	f.Names = append(f.Names, name)
}

// List returns the names in order; of more than ten their number and the first few.
func (f *Failures) List() string {
	const most, examples = 10, 3
	slices.Sort(f.Names)
	names := f.Names
	if len(names) > most {
		names = names[:examples]
	}
	var list []string
	for _, name := range names {
		list = append(list, driver.Quote(name))
	}
	some := strings.Join(list, ", ")
	if len(names) < len(f.Names) {
		return fmt.Sprintf("%d locks, such as %s", len(f.Names), some)
	}
	return some
}

// Err returns the error of an operation that did not release these names; nil if none failed.
func (f *Failures) Err(op string) error {
	if f.First == nil {
		return nil
	}
	return driver.Errorf("%s: not released, and left to expire: %s; the first error: %w", op, f.List(), f.First)
}

// errPanicked is the result of a request or a release during which a context or the driver panicked.
var errPanicked = driver.Errorf("the call panicked")
