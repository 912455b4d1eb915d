package azblob

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// lines is what was said: errors, events and logs.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) note(values ...any) {
	for _, v := range values {
		_, _ = fmt.Fprintf(l, "%v %+v %#v\n", v, v, v)
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// spying remembers every lease ID that a request carries.
type spying struct {
	base http.RoundTripper
	mu   sync.Mutex
	ids  map[string]bool
}

func (s *spying) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	for key, values := range r.Header {
		if k := strings.ToLower(key); k == "x-ms-lease-id" || k == "x-ms-proposed-lease-id" {
			s.ids[values[0]] = true
		}
	}
	s.mu.Unlock()
	return s.base.RoundTrip(r)
}

// sasOf is a SAS for a container, which must exist with shared keys.
func sasOf(t *testing.T, client *container.Client, p sas.ContainerPermissions) string {
	t.Helper()
	signed, err := client.GetSASURL(p, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	return u.RawQuery
}

var allPermissions = sas.ContainerPermissions{Read: true, Add: true, Create: true, Write: true, Delete: true, List: true}

// Every operation meets every fault, a service that quotes the request, and a
// line that is cut: through the driver, and through a Client with an observer
// and a logger. None of what is said has the SAS, its signature or a lease ID.
func TestNothingSecretIsShown(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	query := sasOf(t, room.client, allPermissions)
	signature, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := newWire()
	spy := &spying{base: w.wrap(transport), ids: map[string]bool{}}
	options := &container.ClientOptions{}
	options.Transport = &http.Client{Transport: spy}
	client, err := container.NewClientWithNoCredential(room.client.URL()+"?"+query, options)
	if err != nil {
		t.Fatal(err)
	}
	said := &lines{}
	logger := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	patient, err := New(client, WithLogger(logger), WithRequestTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := hasty(patient, 20*time.Millisecond)

	const cut = "a line that is cut"
	all := append([]trouble{
		{"403", answer(http.StatusForbidden, "AuthenticationFailed"), false, true},
		{"409", answer(http.StatusConflict, "LeaseAlreadyPresent"), false, true},
		{"412", answer(http.StatusPreconditionFailed, "ConditionNotMet"), false, true},
		{cut, lost, false, false},
	}, faults...)
	for _, kind := range all {
		lease := acquire(t, patient, request(kind.name))
		for _, name := range []string{reqAcquire, reqRenew, reqRelease, reqBreak, reqRead, reqMetadata, reqUpload, reqDownload, reqContainer, reqList} {
			w.all(name, kind.f)
		}
		limit := 100 * time.Millisecond
		if kind.name == cut {
			limit = time.Minute // for each method to give up by itself
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		use(ctx, l, lease, said)
		cancel()
		for _, name := range []string{reqAcquire, reqRenew, reqRelease, reqBreak, reqRead, reqMetadata, reqUpload, reqDownload, reqContainer, reqList} {
			w.all(name, nil)
		}
	}
	core(t, l, w, said, logger)
	_ = l.Close(t.Context())
	use(t.Context(), l, driver.Lease{Name: "n", ID: driver.NewLeaseID(newID())}, said)

	text := said.String()
	for _, want := range []string{"AuthenticationFailed", "ServerBusy", "connection reset by the test", "closed"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q: the test saw too little", want)
		}
	}
	secrets := []string{query, signature.Get("sig"), url.QueryEscape(signature.Get("sig")), "sig=", azuritetest.Key}
	for id := range spy.ids {
		secrets = append(secrets, id)
	}
	if len(spy.ids) < 10 {
		t.Errorf("only %d lease IDs were sent", len(spy.ids))
	}
	for _, secret := range secrets {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("a secret is shown: %s", strings.ReplaceAll(text[max(at-300, 0):min(at+100, len(text))], secret, "<secret>"))
		}
	}
}

// use calls every method and notes what it says.
func use(ctx context.Context, l *Locker, lease driver.Lease, said *lines) {
	req := request(lease.Name)
	req.ID = lease.ID
	granted, err := l.TryAcquire(ctx, req)
	said.note(granted, err)
	req.ID, req.Data = driver.NewLeaseID(newID()), []byte("x")
	granted, err = l.TryAcquire(ctx, req)
	said.note(granted, err)
	r, err := l.Inspect(ctx, lease.Name)
	said.note(r, err)
	for r, err := range l.List(ctx, "") {
		said.note(r, err)
	}
	data, at, err := l.ReadData(ctx, lease.Name)
	said.note(data, err, lease, req, l.Renew(ctx, lease), l.WriteData(ctx, lease, []byte("x"), at),
		l.Break(ctx, lease.Name), l.Release(ctx, lease), l.BreakNow(ctx, lease.Name))
	fence, err := NewFence(ctx, l.Blob("fenced").BlobClient(), 1)
	said.note(fence != nil, err)
}

// core has a Client hold a lock, fail to renew it, and wait in vain.
func core(t *testing.T, l *Locker, w *wire, said *lines, logger *slog.Logger) {
	t.Helper()
	patient := hasty(l, 5*time.Second)
	client, err := holdfast.New(patient, holdfast.WithLogger(logger),
		holdfast.WithObserver(func(e holdfast.Event) { said.note(e); logger.Info("event", "event", e) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	w.all(reqRenew, answer(http.StatusForbidden, "AuthenticationFailed"))
	hold, err := client.TryLock(ctx, "core", holdfast.WithTTL(15*time.Second), holdfast.WithRenewEvery(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); w.count(reqRenew) < 3 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	w.all(reqAcquire, answer(http.StatusForbidden, "AuthenticationFailed"))
	waiting, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err = client.Lock(waiting, "core")
	cancel()
	said.note(hold.Lease(), hold.Err(), err)
	w.all(reqRelease, answer(http.StatusForbidden, "AuthenticationFailed"))
	ending, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	said.note(hold.Release(ending), client.Shutdown(ending))
	w.all(reqRenew, nil)
	w.all(reqAcquire, nil)
	w.all(reqRelease, nil)
}
