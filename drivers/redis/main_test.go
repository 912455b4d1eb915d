package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { redistest.Main(m) }

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

// unprobed opens a Locker that writes nothing by itself.
func unprobed(c *config) { c.onlyReads = true }

// client makes a client of the default user of a server.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, Password: redistest.Password})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner " + id, TTL: time.Minute}
}
