package engine_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// unlisted is a backend that cannot list its locks.
type unlisted struct{ holdfast.Locker }

func (u unlisted) Capabilities() driver.Capabilities {
	c := u.Locker.Capabilities()
	c.Lister = nil
	return c
}

// A backend that cannot list its locks says so.
func TestListWithoutALister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		for _, err := range locktest.NewClient(t, unlisted{memory.New()}).List(t.Context(), "") {
			errs = append(errs, err)
		}
		if len(errs) != 1 || errs[0] == nil {
			t.Errorf("List yields %v", errs)
		}
	})
}
