package redis

import (
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// A program's own client is not used, and not closed.
func TestNew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	own := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Password: redistest.Password, DB: 2, PoolSize: 1})
	defer func() { _ = own.Close() }()
	l, err := New(t.Context(), own, WithPrefix("mine:"))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		err = errors.Join(l.Release(t.Context(), lease), l.Close(t.Context()))
	}
	if err != nil {
		t.Error(err)
	}
	if n, err := own.Exists(t.Context(), "mine:n").Result(); err != nil || n != 1 {
		t.Errorf("%d keys in the client's database, %v", n, err)
	}
	elsewhere := func(o *goredis.Options) *goredis.Client { return goredis.NewClient(o) }
	for _, wrong := range []goredis.UniversalClient{nil, (*goredis.Client)(nil), (*goredis.ClusterClient)(nil), &goredis.Ring{},
		goredis.NewClusterClient(&goredis.ClusterOptions{}),
		goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{s.Addr()}, NewClient: elsewhere}),
	} {
		if _, err := New(t.Context(), wrong); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%T: %v", wrong, err)
		}
	}
	for _, o := range []Option{nil, WithPrefix(""), WithPrefix("a*"), WithCommandTimeout(time.Millisecond), WithHistory(33),
		WithReplicas(101)} {
		if _, err := New(t.Context(), own, o); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	}
}
