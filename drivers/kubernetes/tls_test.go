package kubernetes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// Through TLS requests are of HTTP/1.1, each on a connection of its own, and watches share one of HTTP/2. A certificate that nobody has
// signed is refused unless the kubeconfig says otherwise.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	acquire(t, l, "n", "a", 30*time.Second)
	woken := make(chan driver.Wakeup, 100)
	stop := l.Wake("n", "", func(w driver.Wakeup) { woken <- w })
	defer stop()
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("the watch has not come into effect")
	}
	if used := server.Protocols(); used["create"] != "HTTP/1.1" || used["watch"] != "HTTP/2.0" {
		t.Errorf("the protocols are %v", used)
	}
	config := configFor(server.Host())
	config.Insecure = false
	l, err := New(context.WithoutCancel(t.Context()), config, kubernetestest.Namespace)
	if err == nil {
		_ = l.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}
