package kuberneteslock_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-go/holdfast/adapters/kuberneteslock"
	"github.com/holdfast-go/holdfast/driver"
)

// onThePage has the code of docs/adapters.md, without the handling of errors.
func onThePage(ctx context.Context, hostname string, callbacks leaderelection.LeaderCallbacks, config *rest.Config) (ctrl.Manager, error) {
	locker, err := driver.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0")
	if err != nil {
		return nil, err
	}
	lock, err := kuberneteslock.New(locker, "my-operator", hostname+"_"+uuid.NewString())
	if err != nil {
		return nil, err
	}

	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{ // client-go
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true, Callbacks: callbacks,
	})

	manager, err := ctrl.NewManager(config, ctrl.Options{ // or controller-runtime
		LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
	})
	return manager, err
}

func TestPageHasCodeThatCompiles(t *testing.T) {
	_ = onThePage
	page, err := os.ReadFile("../../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## Kubernetes operators\n\n```go\n")
	block, _, _ := strings.Cut(after, "```")
	if block == "" {
		t.Fatal("the page has no code for Kubernetes")
	}
	for line := range strings.Lines(block) {
		if !strings.Contains(string(source), strings.TrimSpace(line)) {
			t.Errorf("the page has a line that is not compiled here: %s", line)
		}
	}
}
