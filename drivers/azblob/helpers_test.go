package azblob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// contextWithoutEnd is for requests that outlive their call.
var contextWithoutEnd = context.Background()

// bounded is the test's context with a limit that ends it before go test does.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// testContainer is a new, existing container of the shared service.
type testContainer struct {
	t       testing.TB
	service *azuritetest.Service
	name    string
	client  *container.Client
}

func newTestContainer(t testing.TB) *testContainer {
	t.Helper()
	limitTests(t)
	service := azuritetest.Shared(t)
	r := &testContainer{t: t, service: service, name: service.Fresh(t)}
	r.client = service.Client(t, r.name, nil)
	if _, err := r.client.Create(bounded(t), nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// locker returns a Locker like that of another process.
func (r *testContainer) locker(opts ...Option) *Locker {
	r.t.Helper()
	l, _ := r.lockerWithFaults(opts...)
	return l
}

// lockerWithFaults returns a Locker with its own fault transport.
func (r *testContainer) lockerWithFaults(opts ...Option) (*Locker, *faultTransport) {
	r.t.Helper()
	w := newFaultTransport()
	l, err := New(r.service.Client(r.t, r.name, w.wrap), append([]Option{WithRequestTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = l.Close(context.WithoutCancel(r.t.Context())) })
	return l, w
}

// The emulator has one thread. If too many tests use it at a time, requests exceed their time
// limits. allTests limits the tests of newTestContainer, many of which mostly wait for a
// lease to end, and parallelTests the busy ones.
var (
	allTests      = make(chan struct{}, 24)
	limitedTests  sync.Map // the tests that allTests has
	parallelTests = make(chan struct{}, 6)
)

// limitTests waits for a place in allTests, unless the test has one.
func limitTests(t testing.TB) {
	t.Helper()
	if _, has := limitedTests.LoadOrStore(t, true); has {
		return
	}
	allTests <- struct{}{}
	t.Cleanup(func() {
		limitedTests.Delete(t)
		<-allTests
	})
}

func limitParallelTests(t *testing.T) {
	t.Helper()
	parallelTests <- struct{}{}
	t.Cleanup(func() { <-parallelTests })
}

// withRequestTimeout returns another Locker with l's client and a short limit for each request.
func withRequestTimeout(l *Locker, d time.Duration) *Locker {
	c := l.config
	c.requestTimeout = d
	return newLocker(l.container, c)
}

// newID returns a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func request(name string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(newID()), Owner: "owner-" + rand.Text()[:6], TTL: time.Minute}
}

// shortRequest is request with the service's shortest TTL.
func shortRequest(name string) driver.Request {
	r := request(name)
	r.TTL = 15 * time.Second
	return r
}

// grantRevision is the revision of the data when the lease was granted.
func grantRevision(l driver.Lease) driver.DataRevision { return driver.DataRevision{Token: l.Token} }

// repeatLate repeats a call as long as its requests exceed their time limits, which they may on a
// busy machine.
func repeatLate(ctx context.Context, call func() error) error {
	for {
		if err := call(); ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// tryAcquire repeats late calls with the same ID.
func tryAcquire(t testing.TB, l *Locker, req driver.Request) (lease driver.Lease, err error) {
	t.Helper()
	ctx := bounded(t)
	err = repeatLate(ctx, func() error { lease, err = l.TryAcquire(ctx, req); return err })
	return lease, err
}

func acquire(t testing.TB, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := tryAcquire(t, l, req)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return lease
}

// used acquires a lock and releases it.
func used(t testing.TB, l *Locker, name string) driver.Lease {
	t.Helper()
	lease := acquire(t, l, request(name))
	release(t, l, lease)
	return lease
}

func release(t testing.TB, l *Locker, held driver.Lease) {
	t.Helper()
	ctx := bounded(t)
	if err := repeatLate(ctx, func() error { return l.Release(ctx, held) }); err != nil {
		t.Fatalf("release: %v", err)
	}
}

func inspect(t testing.TB, l *Locker, name string) driver.Record {
	t.Helper()
	var r driver.Record
	ctx := bounded(t)
	if err := repeatLate(ctx, func() (err error) { r, err = l.Inspect(ctx, name); return err }); err != nil {
		t.Fatalf("inspect: %v", err)
	}
	return r
}

func wantHeld(t testing.TB, l *Locker, name string) {
	t.Helper()
	if _, err := tryAcquire(t, l, request(name)); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("acquire: got %v, want ErrHeld", err)
	}
}

// takeOver repeats the request until the lock is granted, not before earliest and within half a
// minute after it, which is less than the longest lease lasts beyond the shortest.
func takeOver(t testing.TB, l *Locker, req driver.Request, earliest time.Time) driver.Lease {
	t.Helper()
	for {
		lease, err := tryAcquire(t, l, req)
		now := time.Now()
		if err == nil {
			if early := earliest.Sub(now); early > 300*time.Millisecond {
				t.Errorf("taken over %v before the lease could end", early)
			}
			return lease
		}
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("waiting for a lease to end: %v", err)
		}
		if now.Sub(earliest) > 30*time.Second {
			t.Fatalf("still held 30 s after its lease should have ended")
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// wantUnknown fails unless the error leaves the outcome open.
func wantUnknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || driver.OutcomeKnown(err) {
		t.Errorf("%s: got %v, want an error that leaves the outcome open", what, err)
	}
}

// putTokenAhead gives the record of a lease a token that the service's clock does not reach.
func putTokenAhead(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	b := l.Blob(lease.Name)
	properties, err := b.GetProperties(bounded(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	future := "9000000000000000"
	for key := range properties.Metadata {
		if http.CanonicalHeaderKey(key) == http.CanonicalHeaderKey(keyToken) {
			properties.Metadata[key] = &future
		}
	}
	if _, err := b.SetMetadata(bounded(t), properties.Metadata, &blob.SetMetadataOptions{AccessConditions: Conditions(lease)}); err != nil {
		t.Fatal(err)
	}
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
