package azblob

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// What is billed: every request of every operation.
func TestCalls(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, wire := room.wired()
	ctx := bounded(t)
	expect := func(what string, want ...string) {
		t.Helper()
		if got := wire.take(); !slices.Equal(got, want) {
			t.Errorf("%s sends %q, want %q", what, got, want)
		}
	}
	req := request("n")
	lease := acquire(t, l, req)
	expect("the first acquire of a name", reqAcquire, reqUpload, reqAcquire, reqRead, reqMetadata)
	if err := l.Renew(ctx, lease); err != nil {
		t.Error(err)
	}
	expect("a renewal", reqRenew)
	wantHeld(t, l, "n")
	expect("a try for a held lock", reqAcquire)
	acquire(t, l, req)
	expect("a repeat", reqAcquire, reqRead)
	inspect(t, l, "n")
	expect("a look at a held lock", reqDownload, reqRead)
	if err := l.WriteData(ctx, lease, []byte("x"), granted(lease)); err != nil {
		t.Error(err)
	}
	expect("writing data", reqRead, reqUpload)
	if _, _, err := l.ReadData(ctx, "n"); err != nil {
		t.Error(err)
	}
	expect("reading data", reqDownload)
	for _, err := range l.List(ctx, "") {
		if err != nil {
			t.Error(err)
		}
	}
	expect("a list with one held lock", reqList, reqRead)
	release(t, l, lease)
	expect("a release", reqRelease)
	release(t, l, lease)
	expect("a release too many", reqRelease)
	inspect(t, l, "n")
	expect("a look at a free lock", reqDownload)
	lease = acquire(t, l, request("n"))
	expect("an acquire", reqAcquire, reqRead, reqMetadata)
	if err := l.Break(ctx, "n"); err != nil {
		t.Error(err)
	}
	expect("a break", reqRead, reqBreak)
	if err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	expect("a renewal of a lost lease", reqRenew)
	if err := l.BreakNow(ctx, "n"); err != nil {
		t.Error(err)
	}
	expect("a break at once", reqRead, reqBreak)
	withData := request("n")
	withData.Data = []byte("data")
	acquire(t, l, withData)
	expect("an acquire with data", reqAcquire, reqRead, reqUpload)
}

func TestCallsOnAnEmptyAccount(t *testing.T) {
	t.Parallel()
	service := azuritetest.Shared(t)
	room := &room{t: t, service: service, name: service.Fresh(t)}
	l, wire := room.wired()
	if r := inspect(t, l, "n"); r.State != driver.StateFree {
		t.Errorf("without a container: %+v", r)
	}
	for r, err := range l.List(bounded(t), "") {
		t.Errorf("a list without a container: %+v, %v", r, err)
	}
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: l.Limits().MinTTL}
	if err := errors.Join(l.Release(bounded(t), lease), l.Break(bounded(t), "n"), l.BreakNow(bounded(t), "n")); err != nil {
		t.Error(err)
	}
	if err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	if err := l.WriteData(bounded(t), lease, nil, granted(lease)); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	wire.take()
	acquire(t, l, request("n"))
	want := []string{reqAcquire, reqUpload, reqContainer, reqUpload, reqAcquire, reqRead, reqMetadata}
	if got := wire.take(); !slices.Equal(got, want) {
		t.Errorf("the first acquire in an account sends %q, want %q", got, want)
	}
}
