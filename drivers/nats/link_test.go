package nats

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// silent answers nothing.
func silent(*fakeConn, fakeMessage) {}

// A server that does not answer: a request ends by its own time limit, and soon after its context, and says which it was.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	l := openAt(t, startFake(t, greeting, silent).url()+"?requestTimeout=200ms", onlyReads)
	_, err := l.Inspect(t.Context(), "n")
	if err == nil || !strings.Contains(err.Error(), "no answer to") || !strings.Contains(err.Error(), "within 200ms") || driver.Lasting(err) {
		t.Errorf("by its own limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := l.store.Get(ctx, "n"); !errors.Is(err, context.Canceled) {
		t.Errorf("by its context: %v", err)
	}
	// A server that does not even say what it is: Open ends with its context.
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Open(ctx, startFake(t, "", silent).url()+"?requestTimeout=1m"); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(began) > 30*time.Second {
		t.Errorf("connecting: %v after %v", err, time.Since(began))
	}
}

// While there is no connection nothing is kept to be sent late. A request waits for one until its time limit.
func TestNothingIsSentLate(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	openAt(t, server.URL()+"/locks")
	proxy := castest.NewProxy(t, server.Addr())
	l := openAt(t, natstest.At(proxy.Addr())+"/locks?requestTimeout=300ms", onlyReads)
	if _, err := l.store.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	first := present(l)
	proxy.Set(castest.Refuse)
	<-first.ended
	_, err := l.store.Put(t.Context(), "k", []byte("late"), "")
	if err == nil || !strings.Contains(err.Error(), "nothing was sent") || driver.Lasting(err) {
		t.Errorf("without a connection: %v", err)
	}
	proxy.Set(castest.Pass)
	for end := time.Now().Add(time.Minute); ; {
		v, err := l.store.Get(t.Context(), "k") // it waits for the connection
		if err == nil {
			if v.Version != "" {
				t.Errorf("%+v was sent late", v)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A connection that dies silently is left for one to another server, long before the system would notice.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	all := natstest.StartCluster(t, 3)
	openCluster(t, natstest.URLOf(all...)+"/locks")
	proxies := []*castest.Proxy{castest.NewProxy(t, all[0].Addr()), castest.NewProxy(t, all[1].Addr())}
	l := openAt(t, natstest.At(proxies[0].Addr()+","+proxies[1].Addr())+"/locks?requestTimeout=1s", onlyReads)
	for _, p := range proxies {
		if p.Addr() == present(l).nc.ConnectedAddr() {
			p.Set(castest.Stall)
			defer p.Set(castest.Pass)
		}
	}
	began := time.Now()
	if _, err := l.store.Get(t.Context(), "k"); err == nil {
		t.Fatal("the connection is not silent: the test shows nothing")
	}
	for {
		if _, err := l.store.Get(t.Context(), "k"); err == nil {
			break
		} else if time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// A login that is refused, at first or later, is an error that lasts, and ends when the login is accepted again. No secret is shown.
func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t)
	show := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "refuse the login") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := Open(t.Context(), at(s.Addr(), appUser, "secret"))
	show("a wrong password", err)
	_, err = Open(t.Context(), "nats://secret@"+s.Addr()+"/locks")
	show("a token", err)
	l := openAt(t, at(s.Addr(), appUser, appPassword))
	if err := s.Crash(t.Context(), natstest.Users(strings.Replace(appRights, appPassword, "secret-now", 1)), jetStream); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		if _, err = l.Inspect(t.Context(), "n"); errors.Is(err, driver.ErrDenied) || time.Now().After(end) {
			break
		}
	}
	show("a password that was changed", err)
	_, changed, why := l.store.link.present()
	for range 2 { // it tries again and again
		<-changed
		_, changed, why = l.store.link.present()
	}
	show("a login that is tried again", why)
	if err := s.Crash(t.Context(), natstest.Users(appRights), jetStream); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err = l.Inspect(t.Context(), "n"); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A user who may not subscribe to the inbox of answers is told so. With a prefix of its own it may.
func TestInbox(t *testing.T) {
	t.Parallel()
	rights := strings.Replace(appRights, `"_INBOX.>"`, `"_INBOX_app.>"`, 1)
	s := natstest.Start(t, natstest.Users(rights), jetStream)
	openAt(t, s.URL()+"/locks")
	_, err := Open(t.Context(), at(s.Addr(), appUser, appPassword))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), `subscribe to "_INBOX.>"`) {
		t.Error(err)
	}
	l := openAt(t, at(s.Addr(), appUser, appPassword)+"?inboxPrefix=_INBOX_app")
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Error(err)
	}
}

// Permissions that change while the connection stays: each that is missing is named, and all goes on when they are back.
func TestPermissionsThatChange(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t)
	l := openAt(t, at(s.Addr(), appUser, appPassword))
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, err := l.TryAcquire(t.Context(), request("n", "a"))
			if want == "" && err == nil || want != "" && errors.Is(err, driver.ErrDenied) && strings.Contains(err.Error(), want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%v, want %q", err, want)
			}
		}
	}
	for subject, want := range map[string]string{
		"$JS.API.STREAM.INFO.KV_locks":    `publish to "$JS.API.STREAM.INFO.KV_locks"`,
		"$JS.API.STREAM.MSG.GET.KV_locks": `publish to "$JS.API.STREAM.MSG.GET.KV_locks"`,
		"$KV.locks.>":                     `publish to "$KV.locks.n"`,
		"_INBOX.>":                        `subscribe to "_INBOX.>"`,
	} {
		if err := s.Reload(natstest.Users(strings.Replace(appRights, `"`+subject+`"`, `"nothing"`, 1)), jetStream); err != nil {
			t.Fatal(err)
		}
		await(want)
		if err := s.Reload(natstest.Users(appRights), jetStream); err != nil {
			t.Fatal(err)
		}
		await("")
	}
}

// A Locker on a program's connection has its servers and its login, a connection of its own, and leaves the other one alone.
func TestNew(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	closed := make(chan struct{})
	conn, err := natsgo.Connect(s.URL(), natsgo.ClosedHandler(func(*natsgo.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { conn.Close(); <-closed }()
	l, err := New(t.Context(), conn, "locks")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Error(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if conn.IsClosed() || conn.Flush() != nil {
		t.Error("the program's connection was closed")
	}
}

// Another set of locks is in a bucket of its own, which is removed as a whole.
func TestApart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	own, remove := apart(s.URL()+"/locks?history=1", "x_1")
	if !strings.HasSuffix(own, "/locks-x_1?history=1") {
		t.Error(own)
	}
	if err := remove(t.Context()); err != nil {
		t.Errorf("nothing is there: %v", err)
	}
	openAt(t, own)
	if err := remove(t.Context()); err != nil {
		t.Error(err)
	}
	if missing, err := driver.MissingStore(t.Context(), openAt(t, own, onlyReads)); missing != "the bucket locks-x_1" || err != nil {
		t.Errorf("%q, %v", missing, err)
	}
	if _, remove := apart("nats://u:secret@h", "x"); remove(t.Context()) == nil {
		t.Error("a URL without a bucket")
	}
}

// A server that closes each connection as soon as it is made is asked as seldom as one that refuses them.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, nil)
	f.pongs, f.ends = 2, true // the second is that of the first subscription
	began := time.Now()
	openFake(t, f, "")
	time.Sleep(time.Second)
	n := f.connections()
	if within := time.Since(began); n > 1+int(within/(redialWait/2)) {
		t.Errorf("%d connections within %v", n, within)
	}
}

// Check and MissingStore end when the Locker is closed, before or meanwhile, and find nothing wrong then.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		for name, call := range map[string]func(l *Locker) error{
			"Check": func(l *Locker) error {
				return l.Check(t.Context(), func(f driver.Finding) {
					if f.Level > driver.LevelOK {
						t.Errorf("beside Close: %v; a finding: %+v", beside, f)
					}
				})
			},
			"MissingStore": func(l *Locker) error { _, err := l.MissingStore(t.Context()); return err },
		} {
			asked := make(chan struct{}, 10)
			f := startFake(t, greeting, func(*fakeConn, fakeMessage) { asked <- struct{}{} })
			l := openFake(t, f, "?requestTimeout=1m") // longer than the test allows
			closed := make(chan error, 1)
			go func() {
				if beside {
					<-asked // by the call
				}
				closed <- l.Close(t.Context())
			}()
			if !beside {
				closed <- <-closed
			}
			err := locktest.Within(t, 10*time.Second, name, func() error { return call(l) })
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%s, beside Close: %v: %v", name, beside, err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
	}
}

// present is the connection of a Locker.
func present(l *Locker) *conn {
	c, _, _ := l.store.link.present()
	return c
}
