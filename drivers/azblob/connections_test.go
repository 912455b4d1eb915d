package azblob

import (
	"net/url"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Connections that have all died silently cost one request its time limit, and not each of them one.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	const conns = 8
	store := newTestContainer(t)
	if !store.service.Emulator {
		t.Skip("the proxy's address is that of an emulator")
	}
	u, err := url.Parse(store.client.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := castest.NewProxy(t, u.Host)
	l, err := Open(t.Context(), "azblob://emulator/"+store.name+"?endpoint="+url.QueryEscape("http://"+proxy.Addr()+"/"+emulatorAccount))
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	lease := acquire(t, l, request("n"))
	proxy.Set(castest.Stall) // so that each request has a connection of its own
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			if _, err := l.Renew(bounded(t), lease); err != nil {
				t.Error(err)
			}
		})
	}
	locktest.Eventually(t, "a connection for each request", func() bool { return proxy.Open() >= 2*conns })
	proxy.Set(castest.Pass)
	all.Wait()
	proxy.Freeze()
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Errorf("after dead connections: %v", err)
	}
}
