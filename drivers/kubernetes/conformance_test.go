package kubernetes

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(envPlugin); folder != "" {
		os.Exit(plugin(folder))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.Exit(code) }))
}

// open opens a Locker that the test closes. It races no writes.
func open(tb testing.TB, rawURL string, opts ...Option) *Locker {
	tb.Helper()
	return openRacing(tb, rawURL, append(opts, onlyReads)...)
}

// openRacing is open with the races of conditional writes.
func openRacing(tb testing.TB, rawURL string, opts ...Option) *Locker {
	tb.Helper()
	l, err := Open(tb.Context(), rawURL, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close(context.WithoutCancel(tb.Context())) })
	return l
}

func leaseOf(name string) string { return leaseName("", lockrecord.Key(name)) }

// suite is the conformance suite on a server whose clock the test moves.
func suite(t *testing.T, server *kubernetestest.Server, faults func(cas.Store) cas.Store) lockertest.Config {
	t.Helper()
	clock := locktest.NewClock()
	server.SetClock(clock.Now)
	began := clock.Now()
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			elapsed := func(c *settings) { c.elapsed = func() time.Duration { return clock.Now().Sub(began) } }
			l, err := New(t.Context(), configFor(server.Host()), kubernetestest.Namespace, elapsed, func(c *settings) { c.wrap = faults })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
			return l
		},
		Advance:   clock.Advance,
		ClockStep: time.Second,
		Forget: func(_ context.Context, name string) error {
			if !server.Delete(leaseOf(name)) {
				return errors.New("there is no Lease")
			}
			return nil
		},
		Stall: func(_ context.Context, name string) (func(), error) { return server.Stall(leaseOf(name)), nil },
		Deny:  func(context.Context, string) (func(), error) { return server.Deny("*"), nil },
		Damage: func(_ context.Context, name string) (func(), error) {
			return damage(t, server, leaseOf(name))
		},
		Secrets: []string{kubernetestest.Token},
		Without: []string{"FailOver"}, // the server of the test loses nothing
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	lockertest.Run(t, suite(t, kubernetestest.StartPlain(t), nil))
}

// The suite again, with answers that are lost.
func TestConformanceLostAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip(`runs the suite a second time: "make verify" does`)
	}
	t.Parallel()
	var opened atomic.Uint64
	lockertest.Run(t, suite(t, kubernetestest.StartPlain(t), func(s cas.Store) cas.Store {
		return castest.Faulty(t, s, castest.LostAnswers(opened.Add(1)))
	}))
}

// damage cuts a record, as a person who edits it may, and returns what mends it.
func damage(t *testing.T, server leases, name string) (mend func(), err error) {
	t.Helper()
	record := annotationOf(server, name)
	if record == "" {
		return nil, errors.New("there is no record")
	}
	edit := func(text string) error {
		return server.Edit(name, `{"metadata": {"annotations": {"`+Annotation+`": `+quoted(text)+`}}}`)
	}
	return func() {
		if err := edit(record); err != nil {
			t.Error(err)
		}
	}, edit(record[:len(record)/2])
}

func TestWatch(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	castest.RunWatch(t, castest.Watched{Store: l.store, Watch: l.store.watch, Cut: server.Cut})
}

// A watch whose version has expired ends, so that it begins anew with the present Lease.
func TestWatchExpires(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	began, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() { ended <- l.store.watch(t.Context(), "n", func(cas.Value) { began <- struct{}{} }) }()
	<-began
	server.ExpireWatches()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "ERROR") {
			t.Errorf("the watch has ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the watch goes on")
	}
}

// configFor is a program's own configuration for a server at an address.
func configFor(host string) *rest.Config {
	return &rest.Config{Host: host, BearerToken: kubernetestest.Token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: strings.HasPrefix(host, "https:")}}
}
