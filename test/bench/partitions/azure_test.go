package partitions

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Azure Blob Storage has no change events, and its batch reads do not include owners. Instances come
// to the same distribution, but later.
func TestPartitionsOnAzure(t *testing.T) {
	serverprocess.Long(t, "starts fleets of processes")
	const n = 12
	container := azuritetest.Shared(t).Container(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*partitions.Partitions
	done := make(chan error)
	join := func() {
		locker, err := azblob.New(container)
		if err != nil {
			t.Fatal(err)
		}
		client := locktest.NewClient(t, locker, holdfast.WithTTL(15*time.Second))
		p, err := partitions.New(client, "azure/shards", n, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return nil
		}, partitions.WithRebalanceEvery(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		go func() { done <- p.Run(ctx) }()
	}
	waitEven := func() {
		t.Helper()
		begin := time.Now()
		for {
			var owned []int
			shares := make([]int, 0, len(all))
			for _, p := range all {
				mine := p.Owned()
				owned = append(owned, mine...)
				shares = append(shares, len(mine))
			}
			slices.Sort(owned)
			if slices.Max(shares)-slices.Min(shares) <= 1 && len(owned) == n && len(slices.Compact(owned)) == n {
				t.Logf("%d instances: even after %v", len(all), time.Since(begin))
				return
			}
			if time.Since(begin) > 5*time.Minute {
				t.Fatalf("shares of %v after 5 minutes", shares)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	join()
	waitEven()
	join()
	join()
	waitEven()
	begin := time.Now()
	cancel()
	for range all {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	t.Logf("all left after %v", time.Since(begin))
}
