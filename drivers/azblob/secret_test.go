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
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// output collects errors, events and logs.
type output struct{ locktest.Log }

func (l *output) add(values ...any) {
	for _, v := range values {
		_, _ = fmt.Fprintf(l, "%v %+v %#v\n", v, v, v)
	}
}

// leaseIDRecorder records every lease ID that a request contains.
type leaseIDRecorder struct {
	base http.RoundTripper
	mu   sync.Mutex
	ids  map[string]bool
}

func (s *leaseIDRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	for key, values := range r.Header {
		if k := strings.ToLower(key); k == "x-ms-lease-id" || k == "x-ms-proposed-lease-id" {
			s.ids[values[0]] = true
		}
	}
	s.mu.Unlock()
	return s.base.RoundTrip(r)
}

// sasOf returns a SAS for a container; the client must use a shared key.
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

// Every operation meets every fault, a service that quotes the request, and a broken
// connection, through the driver and through a Client with an observer and a logger. No output
// contains the SAS, its signature or a lease ID.
func TestNoSecretIsShown(t *testing.T) {
	serverprocess.Long(t, "tries every fault at every request")
	t.Parallel()
	store := newTestContainer(t)
	query := sasOf(t, store.client, allPermissions)
	signature, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := newFaultTransport()
	spy := &leaseIDRecorder{base: w.wrap(transport), ids: map[string]bool{}}
	options := &container.ClientOptions{}
	options.Transport = &http.Client{Transport: spy}
	client, err := container.NewClientWithNoCredential(store.client.URL()+"?"+query, options)
	if err != nil {
		t.Fatal(err)
	}
	said := &output{}
	logger := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	patient, err := New(client, WithLogger(logger), WithRequestTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := withRequestTimeout(patient, 20*time.Millisecond)

	const cut, busy = "a line that is cut", "503 with a long time to wait"
	all := append([]faultCase{
		{"403", respond(http.StatusForbidden, "AuthenticationFailed"), false, true},
		{"409", respond(http.StatusConflict, "LeaseAlreadyPresent"), false, true},
		{"412", respond(http.StatusPreconditionFailed, "ConditionNotMet"), false, true},
		{cut, lost, false, false},
		{busy, respond(http.StatusServiceUnavailable, "ServerBusy", "Retry-After", "3600"), false, true},
	}, faults...)
	for _, kind := range all {
		lease := acquire(t, patient, request(kind.name))
		for _, name := range []string{reqAcquire, reqRenew, reqRelease, reqBreak, reqRead, reqMetadata, reqUpload, reqDownload, reqContainer,
			reqList} {
			w.all(name, kind.fault)
		}
		limit := 100 * time.Millisecond
		if kind.name == cut || kind.name == busy {
			limit = time.Minute // each method ends by its own limit, or at once
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		useLocker(ctx, l, lease, said)
		cancel()
		for _, name := range []string{reqAcquire, reqRenew, reqRelease, reqBreak, reqRead, reqMetadata, reqUpload, reqDownload, reqContainer,
			reqList} {
			w.all(name, nil)
		}
	}
	useClient(t, l, w, said, logger)
	_ = l.Close(t.Context())
	useLocker(t.Context(), l, driver.Lease{Name: "n", ID: driver.NewLeaseID(newID())}, said)

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

// useLocker calls every method and collects its results.
func useLocker(ctx context.Context, l *Locker, lease driver.Lease, said *output) {
	req := request(lease.Name)
	req.ID = lease.ID
	granted, err := l.TryAcquire(ctx, req)
	said.add(granted, err)
	req.ID, req.Data = driver.NewLeaseID(newID()), []byte("x")
	granted, err = l.TryAcquire(ctx, req)
	said.add(granted, err)
	r, err := l.Inspect(ctx, lease.Name)
	said.add(r, err)
	for r, err := range l.List(ctx, "") {
		said.add(r, err)
	}
	data, at, err := l.ReadData(ctx, lease.Name)
	said.add(data, err, lease, req, errOf(l.Renew(ctx, lease)), l.WriteData(ctx, lease, []byte("x"), at),
		l.Break(ctx, lease.Name, driver.BreakAnybody()), l.Release(ctx, lease), l.BreakNow(ctx, lease.Name, driver.BreakAnybody()))
	fence, err := NewFence(ctx, l.Blob("fenced").BlobClient(), 1)
	said.add(fence != nil, err)
}

// useClient makes a Client hold a lock, fail to renew it, and wait without success.
func useClient(t *testing.T, l *Locker, w *faultTransport, said *output, logger *slog.Logger) {
	t.Helper()
	patient := withRequestTimeout(l, 5*time.Second)
	client, err := holdfast.New(patient, holdfast.WithLogger(logger),
		holdfast.WithObserver(func(e holdfast.Event) { said.add(e); logger.Info("event", "event", e) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	w.all(reqRenew, respond(http.StatusForbidden, "AuthenticationFailed"))
	hold, err := client.TryLock(ctx, "core", holdfast.WithTTL(15*time.Second), holdfast.WithRenewEvery(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); w.count(reqRenew) < 3 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	w.all(reqAcquire, respond(http.StatusForbidden, "AuthenticationFailed"))
	waiting, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err = client.Lock(waiting, "core")
	cancel()
	said.add(hold.Lease(), hold.Err(), err)
	w.all(reqRelease, respond(http.StatusForbidden, "AuthenticationFailed"))
	ending, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	said.add(hold.Release(ending), client.Shutdown(ending))
	w.all(reqRenew, nil)
	w.all(reqAcquire, nil)
	w.all(reqRelease, nil)
}
