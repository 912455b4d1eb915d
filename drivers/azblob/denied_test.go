package azblob

import (
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A missing right and a wrong credential are denied as long as the request has changed nothing. Once
// the lease is taken, that is certain only if it was released again.
func TestDenied(t *testing.T) {
	t.Parallel()
	l, w := newTestContainer(t).lockerWithFaults()
	forbidden := respond(http.StatusForbidden, "AuthorizationPermissionMismatch")
	for _, c := range []struct {
		name   string
		faults map[string]fault
		known  bool
	}{
		{"no right to the lease", map[string]fault{reqAcquire: forbidden}, true},
		{"no credential", map[string]fault{reqAcquire: respond(http.StatusUnauthorized, "NoAuthenticationInformation")}, true},
		{"a proxy's refusal", map[string]fault{reqAcquire: respond(http.StatusForbidden, "", "X-Ms-Request-Id", "")}, false},
		{"no right to make the blob", map[string]fault{reqUpload: forbidden}, true},
		{"no right to write the record", map[string]fault{reqMetadata: forbidden}, true},
		{"nor to release", map[string]fault{reqMetadata: forbidden, reqRelease: forbidden}, false},
		{"no right to read the record", map[string]fault{reqRead: forbidden}, false},
	} {
		for name, f := range c.faults {
			w.all(name, f)
		}
		_, err := l.TryAcquire(bounded(t), request(c.name))
		if errors.Is(err, driver.ErrDenied) != c.known || driver.OutcomeKnown(err) != c.known {
			t.Errorf("%s: %v; want a known outcome: %v", c.name, err, c.known)
		}
		for name := range c.faults {
			w.all(name, nil)
		}
		if r, err := l.Inspect(bounded(t), c.name); c.known && (err != nil || r.State != driver.StateFree) {
			t.Errorf("%s: afterwards %v, %v", c.name, r.State, err)
		}
	}
	lease := acquire(t, l, request("held"))
	w.all(reqRenew, forbidden)
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
}

// A record that is damaged, or of another program, is certain only if the lease that was taken to read
// it was released.
func TestDamaged(t *testing.T) {
	t.Parallel()
	l, w := newTestContainer(t).lockerWithFaults()
	lease := acquire(t, l, request("n"))
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	path := l.lockBlob("n", newID()).blob
	version := "99"
	if _, err := path.SetMetadata(bounded(t), map[string]*string{keyVersion: &version}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(bounded(t), request("n")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("TryAcquire: %v", err)
	}
	if _, err := l.Inspect(bounded(t), "n"); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("Inspect: %v", err)
	}
	w.all(reqRelease, lost)
	if _, err := l.TryAcquire(bounded(t), request("n")); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("TryAcquire, and the lease may be taken: %v", err)
	}
	if _, err := l.Blob("foreign").UploadBuffer(bounded(t), []byte("contents"), nil); err != nil {
		t.Fatal(err)
	}
	req := request("foreign")
	req.Data = []byte("data")
	if _, err := l.TryAcquire(bounded(t), req); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("TryAcquire of another program's blob, and the lease may be taken: %v", err)
	}
}

// A refusal is certain only if no earlier try of the request may have been processed.
func TestDeniedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	forbidden := respond(http.StatusForbidden, "AuthorizationPermissionMismatch")
	for _, c := range []struct {
		first string
		fault fault
		known bool
	}{
		{"the answer is lost", unanswered, false},
		{"the request is lost", lost, false}, // it may be on its way
		{"500", respond(http.StatusInternalServerError, "OperationTimedOut"), false},
		{"too busy", respond(http.StatusServiceUnavailable, "ServerBusy"), true},
	} {
		l, w := newTestContainer(t).lockerWithFaults()
		lease := acquire(t, l, request("n"))
		for _, step := range []struct {
			request string
			call    func() error
		}{
			{reqDownload, func() error { _, err := l.Inspect(bounded(t), "n"); return err }},
			{reqRenew, func() error { return errOf(l.Renew(bounded(t), lease)) }},
			{reqUpload, func() error { return l.WriteData(bounded(t), lease, []byte("x"), grantRevision(lease)) }},
			{reqRelease, func() error { return l.Release(bounded(t), lease) }},
		} {
			w.take()
			w.next(step.request, c.fault)
			w.all(step.request, forbidden)
			err := step.call()
			if errors.Is(err, driver.ErrDenied) != c.known || driver.OutcomeKnown(err) != c.known || err == nil {
				t.Errorf("%s, %s: %v; want a known outcome: %v", step.request, c.first, err, c.known)
			}
			if n := w.count(step.request); n != 2 {
				t.Errorf("%s, %s: %d requests, want 2", step.request, c.first, n)
			}
			w.all(step.request, nil)
		}
	}
}
