//go:build unix

package electors

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/kubernetes"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // which discards everything
	if kind := os.Getenv(envKind); kind != "" {
		child(kind)
	}
	os.Exit(serverprocess.Run(m))
}

// shared is the API server of the tests that do not kill it: that of [kubernetestest.EnvURL], a real one of the programs in
// [kubernetestest.EnvBin], or one in this process.
var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*kubernetestest.Cluster, error) {
	return kubernetestest.NewCluster(ctx, os.Getenv(kubernetestest.EnvBin), dir)
})

// cluster is a part of a cluster: a namespace, and what the names of Leases there begin with.
type cluster struct {
	kubeconfig, namespace, prefix string
}

// clusterAt returns the cluster of a URL of the driver.
func clusterAt(tb testing.TB, rawURL string) cluster {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	return cluster{u.Query().Get("kubeconfig"), u.Host, u.Query().Get("prefix")}
}

func newCluster(tb testing.TB) cluster {
	tb.Helper()
	if os.Getenv(kubernetestest.EnvURL) == "" && os.Getenv(kubernetestest.EnvBin) != "" {
		return clusterAt(tb, shared(tb).AdminURL(tb)+"&prefix="+strings.ToLower(rand.Text())+"-")
	}
	return clusterAt(tb, kubernetestest.URL(tb))
}

// configFor is the configuration of one program. wire may be nil.
func (c cluster) configFor(tb testing.TB, w *wire) *rest.Config {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		tb.Fatal(err)
	}
	config.ContentType = "application/json" // the one that the fake API server knows
	if w != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wired{w, next} })
	}
	return config
}

// client is a Holdfast client of one program. The test shuts it down.
func (c cluster) client(tb testing.TB, w *wire) *holdfast.Client {
	tb.Helper()
	locker, err := kubernetes.New(tb.Context(), c.configFor(tb, w), c.namespace, kubernetes.WithPrefix(c.prefix))
	if err != nil {
		tb.Fatal(err)
	}
	client, err := holdfast.New(locker, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
	})
	return client
}

// elector sets up an elector of one program on the Lease of a lock. Its rate limit is off, unless the settings are client-go's own.
func (c cluster) elector(tb testing.TB, w *wire, name, identity string, s leaderelection.LeaderElectionConfig,
	became func()) *leaderelection.LeaderElector {
	tb.Helper()
	config := c.configFor(tb, w)
	if s.LeaseDuration < defaults.LeaseDuration {
		config.QPS = -1
	}
	client, err := coordination.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	s.Lock = reporting{&resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.prefix + name}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}, became}
	elector, err := leaderelection.NewLeaderElector(s)
	if err != nil {
		tb.Fatal(err)
	}
	return elector
}

// reporting reports that its elector has been elected, before that calls OnStartedLeading in a goroutine.
type reporting struct {
	*resourcelock.LeaseLock
	became func()
}

// RecordEvent implements [resourcelock.Interface].
func (r reporting) RecordEvent(text string) {
	if text == "became leader" {
		r.became()
	}
}

var (
	// defaults are the times that client-go and controller-runtime recommend and use.
	defaults = leaderelection.LeaderElectionConfig{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
		RetryPeriod: 2 * time.Second}
	// quick are short times, so that a test sees many hand-overs. An elector with ReleaseOnCancel ends the context of its work only after it
	// has waited for the retry period, tried to renew until the deadline, and tried to release for as long: so the duration is longer than
	// twice the deadline plus the period, by more than a second of the stamps.
	quick = leaderelection.LeaderElectionConfig{LeaseDuration: 8 * time.Second, RenewDeadline: 3 * time.Second,
		RetryPeriod: 300 * time.Millisecond}
)

// campaign runs an elector until it has led once, or ctx ends. work runs while it leads, and ends with its context.
func (c cluster) campaign(ctx context.Context, tb testing.TB, w *wire, name, identity string, s leaderelection.LeaderElectionConfig,
	work func(ctx context.Context)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	led := false
	s.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			defer close(done)
			work(ctx)
			cancel()
		},
		OnStoppedLeading: func() {},
	}
	c.elector(tb, w, name, identity, s, func() { led = true }).Run(ctx)
	if led { // else nobody calls OnStartedLeading
		<-done
	}
}

// wire is the way from a program to the API server.
type wire struct {
	state atomic.Int32
	sent  atomic.Int64
}

const (
	whole   = iota
	cut     // nothing arrives
	oneWay  // requests arrive, answers are lost
	stalled // as cut, but what was sent arrives when the wire is whole again
)

type wired struct {
	*wire
	next http.RoundTripper
}

var errCut = errors.New("the test has cut the connection")

// RoundTrip implements [http.RoundTripper].
func (w *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	for w.state.Load() == stalled && r.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	state := w.state.Load()
	if state == whole {
		return w.next.RoundTrip(r)
	}
	if state == oneWay {
		if answer, err := w.next.RoundTrip(r); err == nil {
			_ = answer.Body.Close()
		}
	}
	<-r.Context().Done()
	return nil, errors.Join(errCut, r.Context().Err())
}
