package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/file"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	locker, err := file.New(dir)
	if err != nil {
		panic(err)
	}
	defer func() { _ = locker.Close(ctx) }()

	lease, err := locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("first"), Owner: "a", TTL: time.Minute})
	fmt.Println(lease.Owner, err)
	// Any process that opens the same folder sees it.
	_, err = locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("second"), Owner: "b", TTL: time.Minute})
	fmt.Println(errors.Is(err, driver.ErrHeld))
	// Output:
	// a <nil>
	// true
}
