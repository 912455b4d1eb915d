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

// List returns the first few names in order, and the number of the others.
func (f *Failures) List() string {
	const most = 10
	slices.Sort(f.Names)
	var list []string
	for _, name := range f.Names[:min(len(f.Names), most)] {
		list = append(list, driver.Quote(name))
	}
	if more := len(f.Names) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// Err returns the error of an operation that did not release these names; nil if none failed.
func (f *Failures) Err(op string) error {
	if f.First == nil {
		return nil
	}
	return driver.Errorf("holdfast: %s: not released, and left to expire: %s; the first error: %w", op, f.List(), f.First)
}
