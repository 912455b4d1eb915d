package azblob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Prices of 10,000 operations on block blobs in US dollars: tier hot, locally redundant,
// general-purpose v2, East US, pay as you go. Leases, properties and metadata are of the class
// "other". A refused request is billed, too.
// https://azure.microsoft.com/pricing/details/storage/blobs
const (
	priceOther = 0.004 / 10_000
	priceRead  = 0.004 / 10_000
	priceWrite = 0.05 / 10_000
	priceList  = 0.05 / 10_000

	minutesPerMonth = 730 * 60
)

var prices = map[string]float64{
	reqAcquire: priceOther, reqRenew: priceOther, reqRelease: priceOther, reqBreak: priceOther, reqRead: priceOther, reqMetadata: priceOther,
	reqDownload: priceRead, reqUpload: priceWrite, reqContainer: priceList, reqList: priceList,
}

// requestBill is a policy that counts requests, each attempt of them.
type requestBill struct {
	mu     sync.Mutex
	counts map[string]int
}

func (b *requestBill) Do(r *policy.Request) (*http.Response, error) {
	b.mu.Lock()
	b.counts[requestName(r.Raw())]++
	b.mu.Unlock()
	return r.Next()
}

// take returns the number and cost of the requests since the last call.
func (b *requestBill) take() (requests int, dollars float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, n := range b.counts {
		requests += n
		dollars += float64(n) * prices[name]
	}
	clear(b.counts)
	return requests, dollars
}

// BenchmarkFollowers counts, for half a minute and with the default settings, the requests of
// 1,000 followers that wait for locks of one leader, after they have waited for two minutes. A follower is a name for which a process
// waits:
//
//   - 1000x1: a thousand processes and one name, as where every instance of a service waits for
//     one leadership
//   - 10x100: ten processes, each waiting for the same hundred names
//
// The leader's own requests are not counted. A month has 730 hours.
func BenchmarkFollowers(b *testing.B) {
	for _, test := range []struct{ processes, names int }{{1000, 1}, {10, 100}} {
		b.Run(fmt.Sprintf("%dx%d", test.processes, test.names), func(b *testing.B) {
			const window = 30 * time.Second
			for b.Loop() {
				requests, dollars := countFollowerRequests(b, test.processes, test.names, window)
				followers := float64(test.processes * test.names)
				b.ReportMetric(float64(requests)/followers/window.Minutes(), "calls/follower/min")
				b.ReportMetric(dollars/window.Minutes()*minutesPerMonth*1000/followers, "USD/month/1000followers")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// countFollowerRequests returns the number and cost of the followers' requests in the window.
func countFollowerRequests(b *testing.B, processes, names int, window time.Duration) (requests int, dollars float64) {
	store := newTestContainer(b)
	leader := store.process(store.client)
	for i := range names {
		if _, err := leader.Lock(b.Context(), lockName(i)); err != nil {
			b.Fatal(err)
		}
	}
	bill := &requestBill{counts: map[string]int{}}
	client := store.billed(bill)
	ctx, cancel := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	// They begin over two poll intervals, because the emulator has one thread.
	pause := 2 * limits.Poll / time.Duration(processes*names)
	for range processes {
		p := store.process(client)
		for i := range names {
			time.Sleep(pause)
			waiting.Go(func() {
				if _, err := p.Lock(ctx, lockName(i)); !errors.Is(err, context.Canceled) && !errors.Is(err, driver.ErrClosed) {
					b.Errorf("follower of %s: %v", lockName(i), err)
				}
			})
		}
	}
	time.Sleep(24 * limits.Poll) // by then they poll as seldom as they ever do
	bill.take()
	time.Sleep(window)
	return bill.take()
}

func lockName(i int) string { return fmt.Sprintf("job-%03d", i) }

// process returns a Client of its own on a shared container client.
func (r *testContainer) process(client *container.Client) *holdfast.Client {
	r.t.Helper()
	l, err := New(client)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := holdfast.New(l, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), time.Minute)
		defer cancel()
		_ = errors.Join(p.Shutdown(ctx), l.Close(ctx))
	})
	return p
}

// billed returns a container client whose requests are counted.
func (r *testContainer) billed(b *requestBill) *container.Client {
	r.t.Helper()
	key, err := container.NewSharedKeyCredential(r.service.Account, r.service.Key)
	if err != nil {
		r.t.Fatal(err)
	}
	options := &container.ClientOptions{}
	options.PerRetryPolicies = []policy.Policy{b}
	client, err := container.NewClientWithSharedKeyCredential(r.service.Endpoint+"/"+r.name, key, options)
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}
