package kuberneteslock

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// newManager makes a manager whose API server does not exist. No informer needs one.
func newManager(t *testing.T, lock *Lock, task manager.RunnableFunc) manager.Manager {
	t.Helper()
	lease, deadline, retry, graceful := 3*time.Second, 2*time.Second, 300*time.Millisecond, 5*time.Second
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &deadline, RetryPeriod: &retry, GracefulShutdownTimeout: &graceful,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(task); err != nil { // a RunnableFunc needs leadership
		t.Fatal(err)
	}
	return m
}

// The managers of two replicas: one leads, a loss ends its manager, a stop hands over at once.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	store := memory.NewStore()
	leads, stopped := make(chan string, 10), make(chan string, 10)
	results, stops := map[string]chan error{}, map[string]context.CancelFunc{}
	for _, identity := range []string{"a", "b", "c"} {
		lock := newLock(t, store.Locker(), identity)
		m := newManager(t, lock, func(ctx context.Context) error {
			leads <- identity
			<-ctx.Done()
			stopped <- identity
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		results[identity], stops[identity] = result, cancel
		go func() { result <- m.Start(ctx) }()
	}
	first := <-leads
	time.Sleep(time.Second)
	if len(leads) > 0 {
		t.Fatalf("%s and %s lead", first, <-leads)
	}
	if err := store.Locker().Capabilities().Breaker.Break(t.Context(), "operator", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := <-results[first]; err == nil || err.Error() != "leader election lost" {
		t.Errorf("Start after the loss: %v", err)
	}
	if who := <-stopped; who != first {
		t.Errorf("%s stopped, not %s", who, first)
	}
	second := <-leads
	stops[second]()
	if err := <-results[second]; err != nil {
		t.Errorf("Start after the stop: %v", err)
	}
	third := <-leads
	if first == second || second == third || first == third {
		t.Errorf("the leaders were %s, %s, %s", first, second, third)
	}
	stops[third]()
	if err := <-results[third]; err != nil {
		t.Errorf("Start after the stop: %v", err)
	}
}
