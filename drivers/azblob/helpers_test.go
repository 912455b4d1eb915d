package azblob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// contextWithoutEnd is for requests that outlive the call that made them.
var contextWithoutEnd = context.Background()

// bounded is the test's context with a limit that ends it before go test does.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// room is a fresh container of the shared service, which exists.
type room struct {
	t       testing.TB
	service *azuritetest.Service
	name    string
	client  *container.Client
}

func newRoom(t testing.TB) *room {
	t.Helper()
	service := azuritetest.Shared(t)
	r := &room{t: t, service: service, name: service.Fresh(t)}
	r.client = service.Client(t, r.name, nil)
	if _, err := r.client.Create(bounded(t), nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// locker is another process's.
func (r *room) locker(opts ...Option) *Locker {
	r.t.Helper()
	l, _ := r.wired(opts...)
	return l
}

// wired is a Locker that talks through a wire of its own.
func (r *room) wired(opts ...Option) (*Locker, *wire) {
	r.t.Helper()
	w := newWire()
	l, err := New(r.service.Client(r.t, r.name, w.wrap), append([]Option{WithRequestTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = l.Close(context.WithoutCancel(r.t.Context())) })
	return l, w
}

// busy bounds how many of the tests that do not just wait run at once: the
// emulator has one thread, and time limits are to mean something.
var busy = make(chan struct{}, 6)

func takeTurns(t *testing.T) {
	t.Helper()
	busy <- struct{}{}
	t.Cleanup(func() { <-busy })
}

// hasty is another Locker with the client of l and little patience.
func hasty(l *Locker, d time.Duration) *Locker {
	c := l.config
	c.tryTimeout = d
	return newLocker(l.container, c)
}

// newID makes a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func request(name string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(newID()), Owner: "owner-" + rand.Text()[:6], TTL: time.Minute}
}

// brief is request with the shortest TTL that the service has.
func brief(name string) driver.Request {
	r := request(name)
	r.TTL = 15 * time.Second
	return r
}

// granted is the revision of the data when the lease was granted.
func granted(l driver.Lease) driver.DataRevision { return driver.DataRevision{Token: l.Token} }

func acquire(t testing.TB, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bounded(t), req)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return lease
}

func release(t testing.TB, l *Locker, held driver.Lease) {
	t.Helper()
	if err := l.Release(bounded(t), held); err != nil {
		t.Fatalf("release: %v", err)
	}
}

func inspect(t testing.TB, l *Locker, name string) driver.Record {
	t.Helper()
	r, err := l.Inspect(bounded(t), name)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	return r
}

func wantHeld(t testing.TB, l *Locker, name string) {
	t.Helper()
	if _, err := l.TryAcquire(bounded(t), request(name)); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("acquire: got %v, want ErrHeld", err)
	}
}

// takeOver asks until the lock is granted, which must not be before earliest,
// and must within ten seconds after it.
func takeOver(t testing.TB, l *Locker, req driver.Request, earliest time.Time) driver.Lease {
	t.Helper()
	for {
		lease, err := l.TryAcquire(bounded(t), req)
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
		if now.Sub(earliest) > 10*time.Second {
			t.Fatalf("still held 10 s after its lease should have ended")
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// wantUnknown asks for an error that says nothing of the outcome.
func wantUnknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || outcomeKnown(err) {
		t.Errorf("%s: got %v, want an error that says nothing of the outcome", what, err)
	}
}
