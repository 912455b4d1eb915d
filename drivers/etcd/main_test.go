package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/etcdtest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// with adds parameters to a URL.
var with = serverprocess.WithParams

// openAt makes a Locker that is closed at the end of the test.
func openAt(t testing.TB, rawURL string, opts ...Option) *Locker {
	t.Helper()
	l, err := Open(t.Context(), rawURL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// storeAt makes the store of a Locker.
func storeAt(t testing.TB, rawURL string, opts ...Option) *store {
	t.Helper()
	return openAt(t, rawURL, append(opts, onlyReads)...).store
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner " + id, TTL: time.Minute}
}
