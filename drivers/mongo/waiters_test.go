package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A process that waits for a thousand held names reads them together now and then. For single
// names it sends only the few requests that refresh positions in queues: fewer than 32 in 20 s, most of them about
// every ten minutes, and those of the names that came first earlier, since their positions end earlier.
func TestThousandNamesAreReadTogether(t *testing.T) {
	serverprocess.Long(t, "counts what many waiters ask in half a minute")
	t.Parallel()
	const count, window = 1000, 30 * time.Second
	coll, sent := monitoredCollection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Hour})
	var record bson.D
	if err := coll.FindOne(bounded(t), docOf(fieldName, "job")).Decode(&record); err != nil {
		t.Fatal(err)
	}
	var all []any
	for i := range count {
		one := append(bson.D{{Key: fieldName, Value: fmt.Sprint("job-", i)}}, record[1:]...)
		all = append(all, one)
	}
	if _, err := coll.InsertMany(bounded(t), all); err != nil || record[0].Key != fieldName {
		t.Fatal(err)
	}
	client, err := holdfast.New(l, holdfast.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			if _, err := client.Lock(ctx, fmt.Sprint("job-", i)); !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		})
	}
	defer func() { cancel(); wg.Wait() }()
	attempts := func() int { return sent.count("findAndModify") }
	eventually(t, "all have asked", func() bool { return attempts() > count })
	time.Sleep(10 * time.Second) // until the batch reads coincide
	var reads, asked int
	for range 12 { // a busy machine needs a while for the first thousand requests
		reads, asked = sent.count("find"), attempts()
		time.Sleep(window)
		reads, asked = sent.count("find")-reads, attempts()-asked
		t.Logf("%d reads, %d attempts in %v", reads, asked, window)
		if reads >= 1 && reads <= 6 && asked <= 32*int(window/time.Second)/20 {
			return
		}
	}
	t.Errorf("%d reads, %d attempts in %v for %d names", reads, asked, window, count)
}
