package migrating_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
)

// Two locks of different kinds keep the contract, too. The limits of both apply, and each has its clock. With the queue of
// the old lock waiters have an order, but nothing reports a release of the new lock.
func TestConformanceFromMemoryToFile(t *testing.T) {
	t.Parallel()
	for name, queue := range map[string]bool{"with a queue": true, "without queues": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, dir := memory.NewStore(), t.TempDir()
			var late, lateOld lockertest.LateReleases
			lockertest.Run(t, lockertest.Config{
				New: func(t *testing.T) driver.Locker {
					t.Helper()
					files, err := file.New(dir)
					if err != nil {
						t.Fatal(err)
					}
					var part driver.Locker = old.Locker()
					if !queue {
						part = plain{part}
					}
					l := newLocker(t, late.Locker(files), migrating.FromLocker(lateOld.Locker(part)))
					t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
					return l
				},
				Without: []string{"Damage", "Deny", "FailOver", "Forget", "Stall"},
			})
		})
	}
}
