package kubernetes

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// benchURL is that of a real API server if there are its programs, and else of the one in this process.
func benchURL(b *testing.B) string {
	b.Helper()
	if os.Getenv(kubernetestest.EnvBin) != "" {
		return kubernetestest.StartCluster(b).URL(b)
	}
	return kubernetestest.URL(b)
}

func BenchmarkCalls(b *testing.B) {
	l := open(b, benchURL(b))
	stores.Calls(b, l, stores.Put(b.Context(), l.store))
}

func BenchmarkHandover(b *testing.B) {
	at := benchURL(b)
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, onlyReads, func(c *settings) { c.sent = sent })
	})
}
