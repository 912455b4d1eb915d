package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// A token that has ended is replaced, and the request is made again: after a time, after the member has started again, and when
// the authentication is enabled late.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, "--auth-token-ttl=1")
	l := openAt(t, at(s, appUser, appPassword)) // without authentication the login is not needed
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]string{appUser: appPassword, etcdtest.Reader: appPassword}
	if err := s.EnableLogin(t.Context(), defaultPrefix+"/", users); err != nil {
		t.Fatal(err)
	}
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Errorf("after the authentication was enabled: %v", err)
	}
	time.Sleep(3 * time.Second) // members look for tokens that have ended every second
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Errorf("after the token has ended: %v", err)
	}
	if err := s.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if lease, err = l.Renew(t.Context(), lease); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Errorf("after the member was started again: %v", err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	// Lasting refusals show no password.
	for what, at := range map[string]string{
		"wrong password": at(s, appUser, "wrong-secret"), "unknown user": at(s, "nobody", "wrong-secret"), "no user": s.URL(),
		"another prefix": at(s, appUser, appPassword) + "/other", "a reader": at(s, etcdtest.Reader, appPassword),
	} {
		_, err := Open(t.Context(), at)
		if !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), appPassword) {
			t.Errorf("%s: %v", what, err)
		}
	}
	reader, err := driver.OpenForReading(t.Context(), at(s, etcdtest.Reader, appPassword))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close(context.WithoutCancel(t.Context())) }()
	if r, err := reader.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token {
		t.Errorf("a reader: %+v, %v", r, err)
	}
	for r, err := range reader.Capabilities().Lister.List(t.Context(), "") {
		if err != nil || r.Name != "n" {
			t.Errorf("a reader: %+v, %v", r, err)
		}
	}
	if _, err := reader.TryAcquire(t.Context(), request("m", "b")); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a reader acquires: %v", err)
	}
}

// Many requests whose token has ended share one login. One that fails is tried by the next of them.
func TestSharedLogin(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	logins := 0
	l := &login{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			token, number, err := l.token(t.Context(), 0, func() (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if logins++; logins == 1 {
					return "", errors.New("no answer")
				}
				time.Sleep(10 * time.Millisecond)
				return fmt.Sprint("token-", logins), nil
			})
			if err == nil && (token != "token-2" || number != 1) {
				t.Errorf("%s, %d", token, number)
			}
		})
	}
	all.Wait()
	if logins != 2 || l.latest() != "token-2" {
		t.Errorf("%d logins, and the token %s", logins, l.latest())
	}
	// One that waits for another's ends with its context.
	under, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = l.token(t.Context(), 1, func() (string, error) { close(under); <-ended2(t); return "", errors.New("no answer") })
	}()
	<-under
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.token(ctx, 1, nil); !errors.As(err, new(*elsewhereError)) {
		t.Error(err)
	}
	<-ended
}

// ended2 is closed soon.
func ended2(t *testing.T) <-chan struct{} {
	t.Helper()
	c := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(c) })
	return c
}

// Without a login, a change of users or roles at the moment of a request does not refuse it for good: nothing was done, and it is made
// again.
func TestUsersThatAreChanged(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	changed := reply{status: statusInvalidArgument, text: "etcdserver: revision of auth store is old"}
	f.set(methodRange, changed)
	if _, err := s.Get(t.Context(), "k"); err == nil || driver.Lasting(err) || f.requests(methodRange) != 2 {
		t.Errorf("%v, after %d requests", err, f.requests(methodRange))
	}
	changed.do = func() { f.set(methodRange, reply{}) }
	f.set(methodRange, changed)
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// A member that refuses each token is asked twice, and no more. A login without an answer has changed nothing: another member is asked.
func TestTokenThatIsRefused(t *testing.T) {
	t.Parallel()
	first, second := startFake(t), startFake(t)
	token := reply{message: appendBytes(from(7), 2, []byte("token-secret"))}
	first.set(methodAuthenticate, token)
	second.set(methodAuthenticate, token)
	second.set(methodTxn, reply{message: done(7)})
	s := storeAt(t, strings.Replace(urlOf(first.addr(), second.addr()), "://", "://u:p@", 1))
	first.refuse(methodRange, statusUnauthenticated, "etcdserver: invalid auth token")
	_, err := s.Get(t.Context(), "k")
	if err == nil || driver.Lasting(err) || first.requests(methodRange) != 2 || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v after %d requests", err, first.requests(methodRange))
	}
	first.set(methodRange, reply{})
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	first.refuse(methodTxn, statusUnauthenticated, "etcdserver: invalid auth token")
	first.set(methodAuthenticate, reply{do: func() { panic(http.ErrAbortHandler) }})
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err != nil || second.requests(methodTxn) != 1 {
		t.Errorf("%v, and %d writes at the other member", err, second.requests(methodTxn))
	}
}
