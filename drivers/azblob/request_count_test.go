package azblob

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// Every request is billed, so the test lists those of every operation.
func TestRequestsOfEachCall(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, sent := store.lockerWithFaults()
	ctx := bounded(t)
	expect := func(what string, want ...string) {
		t.Helper()
		if got := sent.take(); !slices.Equal(got, want) {
			t.Errorf("%s sends %q, want %q", what, got, want)
		}
	}
	req := request("n")
	lease := acquire(t, l, req)
	expect("the first acquire of a name", reqAcquire, reqUpload, reqAcquire, reqRead, reqMetadata)
	if _, err := l.Renew(ctx, lease); err != nil {
		t.Error(err)
	}
	expect("a renewal", reqRenew)
	wantHeld(t, l, "n")
	expect("an attempt for a held lock", reqAcquire)
	acquire(t, l, req)
	expect("a repeated acquire", reqAcquire, reqRead)
	inspect(t, l, "n")
	expect("inspecting a held lock", reqDownload, reqRead)
	if err := l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)); err != nil {
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
	expect("a repeated release", reqRelease)
	inspect(t, l, "n")
	expect("inspecting a free lock", reqDownload)
	lease = acquire(t, l, request("n"))
	expect("an acquire", reqAcquire, reqRead, reqMetadata)
	if err := l.Break(ctx, "n", driver.BreakAnybody()); err != nil {
		t.Error(err)
	}
	expect("a break", reqRead, reqRead, reqBreak) // the second read asks whether the record is the holder's
	if _, err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	expect("a renewal of a lost lease", reqRenew)
	if err := l.BreakNow(ctx, "n", driver.BreakAnybody()); err != nil {
		t.Error(err)
	}
	expect("a break at once", reqRead, reqRead, reqBreak)
	withData := request("n")
	withData.Data = []byte("data")
	acquire(t, l, withData)
	expect("an acquire with data", reqAcquire, reqRead, reqUpload)
}

func TestRequestsOnAnEmptyAccount(t *testing.T) {
	t.Parallel()
	service := azuritetest.Shared(t)
	store := &testContainer{t: t, service: service, name: service.Fresh(t)}
	l, sent := store.lockerWithFaults()
	if r := inspect(t, l, "n"); r.State != driver.StateFree {
		t.Errorf("without a container: %+v", r)
	}
	for r, err := range l.List(bounded(t), "") {
		t.Errorf("a list without a container: %+v, %v", r, err)
	}
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: l.Info().Limits.MinTTL}
	if err := errors.Join(l.Release(bounded(t), lease), l.Break(bounded(t), "n", driver.BreakAnybody()),
		l.BreakNow(bounded(t), "n", driver.BreakAnybody())); err != nil {
		t.Error(err)
	}
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	if err := l.WriteData(bounded(t), lease, nil, grantRevision(lease)); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	sent.take()
	acquire(t, l, request("n"))
	want := []string{reqAcquire, reqUpload, reqContainer, reqUpload, reqAcquire, reqRead, reqMetadata}
	if got := sent.take(); !slices.Equal(got, want) {
		t.Errorf("the first acquire in an account sends %q, want %q", got, want)
	}
}
