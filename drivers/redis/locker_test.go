package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/locktest"
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

// The Locker has connections for its own requests, and no others, whatever the program's client keeps for the program's.
func TestPoolOfTheProgram(t *testing.T) {
	type dialer = func(context.Context, string, string) (net.Conn, error)
	for name, client := range map[string]func(dial dialer) goredis.UniversalClient{
		"one server": func(dial dialer) goredis.UniversalClient {
			return goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", Dialer: dial, MinIdleConns: 5, MaxActiveConns: 5})
		},
		"cluster": func(dial dialer) goredis.UniversalClient {
			addrs := []string{"127.0.0.1:1"}
			return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs, Dialer: dial, MinIdleConns: 5, MaxActiveConns: 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				own := client(func(context.Context, string, string) (net.Conn, error) {
					dials.Add(1)
					return nil, errors.New("away")
				})
				defer func() {
					_ = own.Close()
					time.Sleep(time.Minute) // until its dials in the background end
				}()
				synctest.Wait()
				before := dials.Load()
				l, err := New(t.Context(), own, unprobed)
				if err != nil {
					t.Fatal(err)
				}
				o := l.store.servers.some().Options()
				synctest.Wait()
				if n := dials.Load() - before; n > 0 || o.MaxActiveConns > 0 {
					t.Errorf("%d connections without a request, of at most %d", n, o.MaxActiveConns)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Newer versions of go-redis have options that must not be copied with the others. This version has none of them.
func TestOptionsOfNewerVersions(t *testing.T) {
	o := struct {
		Addr                  string
		ClientSideCacheConfig *int
	}{"h:1", new(int)}
	if clearNamed(&o, "ClientSideCache", "ClientSideCacheConfig"); o.ClientSideCacheConfig != nil || o.Addr != "h:1" {
		t.Errorf("the options are %+v", o)
	}
	client := goredis.NewClient(&goredis.Options{Addr: "h:1"})
	defer func() { _ = client.Close() }()
	for _, name := range []string{"ClientSideCacheConfig", "PushNotificationProcessor"} {
		if field := reflect.ValueOf(client.Options()).Elem().FieldByName(name); field.IsValid() && field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
		}
	}
	l, err := New(t.Context(), client, unprobed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	for _, name := range []string{"ClientSideCache", "ClientSideCacheConfig"} {
		field := reflect.ValueOf(l.store.servers.some().Options()).Elem().FieldByName(name)
		if field.IsValid() && !field.IsZero() {
			t.Errorf("%s is copied", name)
		}
	}
}

// neverShakesHands is a server that accepts connections, which it reports, and is silent.
func neverShakesHands(t *testing.T) (addr string, accepted chan struct{}) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = make(chan struct{}, 10)
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			accepted <- struct{}{}
		}
	})
	return listener.Addr().String(), accepted
}

// Close does not wait for the dial of a request: neither by a URL nor with a program's own client, whose dialer does not end with its
// context.
func TestCloseWaitsForNoDial(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	for what, open := range map[string]func(addr string) (*Locker, error){
		"URL": func(addr string) (*Locker, error) {
			return Open(t.Context(), "rediss://"+addr+"/?commandTimeout=1m&caFile="+ca.File, unprobed)
		},
		"cluster": func(addr string) (*Locker, error) {
			return Open(t.Context(), "rediss://"+addr+"/?cluster=true&commandTimeout=1m&caFile="+ca.File, unprobed)
		},
		"client": func(addr string) (*Locker, error) {
			own := goredis.NewClient(&goredis.Options{Addr: addr, DialTimeout: time.Minute,
				TLSConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}})
			t.Cleanup(func() { _ = own.Close() })
			return New(t.Context(), own, WithCommandTimeout(time.Minute), unprobed)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			addr, accepted := neverShakesHands(t)
			l, err := open(addr)
			if err != nil {
				t.Fatal(err)
			}
			var calls sync.WaitGroup
			defer calls.Wait()
			calls.Go(func() { _, _ = l.Inspect(t.Context(), "n") })
			<-accepted
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err = locktest.Within(t, 10*time.Second, "Close", func() error { return l.Close(ctx) })
			if err != nil && (what != "client" || !strings.Contains(err.Error(), "requests are still under way")) {
				t.Error(err) // newer versions of go-redis leave such a dial by themselves
			}
		})
	}
}

// What hangs keeps no other connection open. A Close whose context has ended has time for what takes a moment.
func TestCloseThatHangs(t *testing.T) {
	t.Parallel()
	for what, hangs := range map[string]bool{"a moment": false, "forever": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := openAt(t, "redis://"+fakeNode(t, func(string) string { return "" }), unprobed)
			client := l.store.servers.some()
			goOn := make(chan struct{})
			l.store.hub.work.Go(func() { <-goOn })
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if !hangs {
				time.AfterFunc(200*time.Millisecond, func() { close(goOn) })
			}
			if err := l.Close(ctx); (err != nil) != hangs {
				t.Errorf("Close: %v", err)
			}
			locktest.Eventually(t, "the other connections are closed", func() bool {
				return errors.Is(client.Ping(t.Context()).Err(), goredis.ErrClosed)
			})
			if hangs {
				close(goOn)
			}
		})
	}
}
