package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// gatewayConfig is a configuration for a server with a lasting credential, which has no session token.
func gatewayConfig(endpoint string) aws.Config {
	config := configFor(endpoint)
	config.Credentials = credentials.NewStaticCredentialsProvider(s3test.KeyID, s3test.Secret, "")
	return config
}

// put writes an object without a condition, as a person may.
func put(ctx context.Context, s *store, key string, body []byte) error {
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodPut, URL: s.object(key), Body: body})
	if err == nil && !answer.Done() {
		err = s.refused(answer)
	}
	return err
}

// The conformance suite on a real server. FailOver kills it.
func TestConformanceGateway(t *testing.T) {
	gateway := s3test.StartGateway(t, s3test.EnvGateway)
	editor := open(t, gatewayConfig(gateway.Endpoint()), WithPrefix("team")).store
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openRacing(t, gatewayConfig(gateway.Endpoint()), WithPrefix("team"))
		},
		ClockStep: httpstore.MaxDateAge,
		Forget: func(ctx context.Context, name string) error {
			return editor.remove(ctx, lockrecord.Key(name))
		},
		Stall: func(context.Context, string) (func(), error) {
			return func() {
				if err := gateway.Resume(); err != nil {
					t.Error(err)
				}
			}, gateway.Pause()
		},
		FailOver: gateway.Crash,
		Deny:     func(ctx context.Context, _ string) (func(), error) { return gateway.Deny(ctx) },
		Damage: func(ctx context.Context, name string) (func(), error) {
			key := lockrecord.Key(name)
			v, err := editor.Get(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() {
				if err := put(context.WithoutCancel(ctx), editor, key, v.Data); err != nil {
					t.Error(err)
				}
			}, put(ctx, editor, key, v.Data[:len(v.Data)/2])
		},
		Secrets: []string{s3test.KeyID, s3test.Secret, s3test.SessionToken},
	})
}

// The fake server answers as a real one where the driver looks.
func TestGateway(t *testing.T) {
	gateway := s3test.StartGateway(t, s3test.EnvGateway)
	config := gatewayConfig(gateway.Endpoint())
	l := openRacing(t, config, WithPrefix("team"))
	lease := acquire(t, l, "Jobs/nightly %~é", "a", 30*time.Second)
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bucket: ok", "rights: ok", "lifecycle rules: ", "old versions: ok", "clocks: ok", "store: ok",
		"conditional writes: ok"} {
		if found := findings(t, l); !strings.Contains(found, want) {
			t.Errorf("doctor found\n%s, want %q", found, want)
		}
	}
	answer, err := l.store.send(t.Context(), httpstore.Request{Method: http.MethodPut, URL: l.store.at + "/?versioning=",
		Body: []byte(versioned)})
	if err != nil || !answer.Done() {
		t.Fatal(answer.Status, string(answer.Body), err)
	}
	if found := findings(t, l); !strings.Contains(found, "old versions: doubtful") {
		t.Errorf("doctor found\n%s", found)
	}
	acquire(t, l, "versioned", "a", 30*time.Second)
	for i := range 25 {
		acquire(t, l, fmt.Sprintf("many-%02d", i), "a", 30*time.Second)
	}
	items, _, err := l.store.List(t.Context(), "many-", "")
	if err != nil || len(items) != 25 {
		t.Errorf("%d items, %v", len(items), err)
	}
	_, err = New(t.Context(), config, "absent")
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "aws s3 mb s3://absent") {
		t.Errorf("a bucket that does not exist: %v", err)
	}
	wrong := config
	wrong.Region = "us-wrong-1"
	if _, err := New(t.Context(), wrong, s3test.Bucket); !errors.Is(err, driver.ErrDenied) || showsSecret(err.Error()) {
		t.Errorf("another region: %v", err)
	}
	allow, err := gateway.Deny(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = try(t, l, "n", "a", 30*time.Second)
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "does not accept the credential") || showsSecret(err.Error()) {
		t.Errorf("with a wrong secret: %v", err)
	}
	allow()
	acquire(t, l, "n", "a", 30*time.Second)
}

// Eight clients on one lock, with a crash of the server in the middle, through a network that loses and doubles: at most one holds it at
// a time, and tokens rise.
func TestGatewayContention(t *testing.T) {
	gateway := s3test.StartGateway(t, s3test.EnvGateway)
	proxy := castest.NewProxy(t, gateway.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var mu sync.Mutex
	holder, last, grants := "", uint64(0), 0
	var clients sync.WaitGroup
	for i := range 8 {
		l := open(t, gatewayConfig("http://"+proxy.Addr()))
		name := fmt.Sprintf("client-%d", i)
		clients.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				id := driver.NewLeaseID(fmt.Sprint(name, began.UnixNano()))
				lease, err := l.TryAcquire(ctx, driver.Request{Name: "n", ID: id, Owner: name, TTL: 5 * time.Second})
				if err != nil {
					continue
				}
				mu.Lock()
				if holder != "" || lease.Token <= last {
					t.Errorf("%s has got the token %d after %d, beside %q", name, lease.Token, last, holder)
				}
				holder, last = name, lease.Token
				grants++
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				holder = ""
				mu.Unlock()
				if time.Since(began) > 4*time.Second {
					continue // the lease may be over
				}
				_ = l.Release(context.WithoutCancel(ctx), lease)
			}
		})
	}
	for round := 0; ctx.Err() == nil; round++ {
		for _, mode := range []castest.Mode{castest.Pass, castest.LoseAnswers, castest.Pass, castest.Double, castest.Refuse} {
			proxy.Set(mode)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
			proxy.Cut()
		}
		if round == 2 {
			if err := gateway.Crash(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	proxy.Set(castest.Pass)
	clients.Wait()
	if t.Logf("%d grants", grants); grants < 20 {
		t.Errorf("only %d grants", grants)
	}
}

// The server is killed again and again while clients compete.
func TestKilledGateway(t *testing.T) {
	gateway := s3test.StartGateway(t, s3test.EnvGateway)
	var lockers []driver.Locker
	for range 4 {
		lockers = append(lockers, open(t, gatewayConfig("http://"+gateway.Addr())))
	}
	castest.Compete(t, castest.Competition{Lockers: lockers, Faults: 5, Fault: func(int) error {
		return gateway.Crash(t.Context())
	}})
}

// Version 1.7.0 of the server lets several conditional writes win. Open notices that, and no later one works on it.
func TestFaultyGatewayIsRefused(t *testing.T) {
	gateway := s3test.StartGateway(t, s3test.EnvFaultyGateway)
	const stores, most = 10, 20
	opens := 0
	for i := range stores {
		refused := false
		for range most {
			opens++
			l, err := New(t.Context(), gatewayConfig(gateway.Endpoint()), s3test.Bucket, WithPrefix(fmt.Sprintf("p%d", i)))
			if err == nil {
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
				continue
			}
			if !strings.Contains(err.Error(), "so two clients could hold one lock") {
				t.Errorf("store %d: %v", i, err)
			}
			refused = true
			break
		}
		if !refused {
			t.Errorf("store %d was opened %d times", i, most)
		}
	}
	t.Logf("%d stores were refused after %d opens", stores, opens)
}
