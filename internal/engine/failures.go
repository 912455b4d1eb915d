package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver/text"
)

// failures keeps the names of what failed, and the first error, so that thousands of
// them make one readable error.
type Failures struct {
	Names []string
	First error
}

func (f *Failures) Add(name string, err error) {
	if f.First == nil {
		f.First = err
	}
	f.Names = append(f.Names, name)
}

// list names the first few in order.
func (f *Failures) List() string {
	const most = 10
	slices.Sort(f.Names)
	var list []string
	for _, name := range f.Names[:min(len(f.Names), most)] {
		list = append(list, text.Quote(name))
	}
	if more := len(f.Names) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

func (f *Failures) Err(op string) error {
	if f.First == nil {
		return nil
	}
	return fmt.Errorf("holdfast: %s: not released, and left to expire: %s; the first error: %w", op, f.List(), f.First)
}
