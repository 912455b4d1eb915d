package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// The conformance suite on a real API server, by a user with the least rights. FailOver kills it, and its etcd.
func TestConformanceCluster(t *testing.T) {
	cluster := kubernetestest.StartCluster(t)
	lockertest.Run(t, lockertest.Config{
		New:       func(t *testing.T) driver.Locker { return openRacing(t, cluster.URL(t)) },
		ClockStep: time.Second,
		Forget: func(_ context.Context, name string) error {
			if !cluster.Delete(leaseOf(name)) {
				return errors.New("there is no Lease")
			}
			return nil
		},
		Stall: func(context.Context, string) (func(), error) {
			return func() {
				if err := cluster.API.Resume(); err != nil {
					t.Error(err)
				}
			}, cluster.API.Pause()
		},
		FailOver: cluster.Crash,
		Deny:     func(ctx context.Context, _ string) (func(), error) { return cluster.Deny(ctx) },
		Damage:   func(_ context.Context, name string) (func(), error) { return damage(t, cluster, leaseOf(name)) },
		Secrets:  []string{kubernetestest.Token},
	})
}

// The fake API server answers as a real one where the driver looks: a refusal's kind, a conflict, a Lease's stamps, and a watch.
func TestCluster(t *testing.T) {
	cluster := kubernetestest.StartCluster(t)
	l := openRacing(t, cluster.URL(t))
	castest.RunWatch(t, castest.Watched{Store: l.store, Watch: l.store.watch, Limit: time.Minute, Cut: func() {
		if err := cluster.API.Crash(t.Context()); err != nil {
			t.Error(err)
		}
	}})
	var found []driver.Finding
	if err := l.Check(t.Context(), func(f driver.Finding) { found = append(found, f) }); err != nil {
		t.Error(err)
	}
	for _, f := range found {
		if f.Level != driver.LevelOK {
			t.Errorf("%s: %s", f.Subject, f.Detail)
		}
	}
	allow, err := cluster.Deny(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = try(t, l, "n", "a", 30*time.Second)
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "locks-role.yaml") {
		t.Errorf("without rights: %v", err)
	}
	allow()
	lease := acquire(t, l, "Jobs/nightly", "a", 30*time.Second)
	if _, err = l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	var object struct {
		Metadata struct{ ManagedFields []managed }
	}
	if err := json.Unmarshal(cluster.Lease("x--4aobs--2fnightly"), &object); err != nil || len(object.Metadata.ManagedFields) != 1 {
		t.Errorf("the Lease is %s, %v", cluster.Lease("x--4aobs--2fnightly"), err)
	}
	_, err = Open(t.Context(), strings.Replace(cluster.URL(t), kubernetestest.Namespace, "absent", 1))
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}
