package mongolock_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/migrating/mongolock"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// plain is a Locker without a queue. Whoever waits is refused by the old lock, which has none, so there is no order.
type plain struct{ driver.Locker }

func (p plain) Capabilities() driver.Capabilities {
	c := p.Locker.Capabilities()
	c.Waker, c.Queue = nil, nil
	return c
}

// An old lock in MongoDB and a new one keep the contract of one lock.
func TestConformance(t *testing.T) {
	t.Parallel()
	c, store := mongotest.Collection(t), memory.NewStore()
	schema := mongolock.ShedLock()
	schema.Skew = 10 * time.Millisecond // the lock is granted this much later
	var late lockertest.LateReleases
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l, err := migrating.New(late.Locker(plain{store.Locker()}), newLock(t, c, schema))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
			return l
		},
		Forget: func(ctx context.Context, name string) error {
			store.Remove(name)
			_, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: name}})
			return err
		},
		Without: []string{"Damage", "Deny", "Stall"}, // the new lock cannot hang or refuse, and no clause is about half a lock
	})
}
