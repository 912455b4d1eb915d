package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// front is a server with TLS before one without.
type front struct {
	addr  string
	conns atomic.Int64 // how many have passed the handshake
}

// startFront starts one, whose certificate is of an authority. It demands one of the client if asks says so.
func startFront(t *testing.T, ca *authority.Authority, asks tls.ClientAuthType, to string) *front {
	t.Helper()
	pair := signed(t, ca, "server")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: listener.Addr().String()}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: asks, ClientCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
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
			work.Go(func() { f.serve(conn, config, to) })
		}
	})
	return f
}

func (f *front) serve(conn net.Conn, config *tls.Config, to string) {
	defer func() { _ = conn.Close() }()
	encrypted := tls.Server(conn, config)
	if encrypted.Handshake() != nil {
		if plain, is := conn.(*net.TCPConn); is { // otherwise what the client sends would drop the alert
			_ = plain.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
		return
	}
	f.conns.Add(1)
	server, err := (&net.Dialer{}).Dial("tcp", to)
	if err != nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.Copy(encrypted, server)
		_ = encrypted.Close()
	})
	_, _ = io.Copy(server, encrypted)
	_ = server.Close()
	work.Wait()
}

// signed makes a certificate.
func signed(t *testing.T, ca *authority.Authority, commonName string) tls.Certificate {
	t.Helper()
	cert, key := ca.Sign(t, commonName)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// secureURL is that of a server with TLS.
func secureURL(addr string, params ...string) string {
	return with(strings.Replace(redistest.At(addr), "redis:", "rediss:", 1), append(params, "prefix=tls:")...)
}

// takesOverTLS has a Locker take, renew and release a lock, and be woken. Only its connections with TLS lead to the server.
func takesOverTLS(t *testing.T, l *Locker, f *front, name string) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), request(name, "a"))
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan driver.Wakeup, 100)
	defer l.Capabilities().Waker.Wake(name, "", func(up driver.Wakeup) { woken <- up })()
	await := func(what string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Fatal("no notification: " + what)
		}
	}
	await("it has begun")
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	await("a release")
	if n := f.conns.Load(); n < 2 {
		t.Errorf("%d connections with TLS, want one for requests and one for notifications", n)
	}
}

// With TLS, all connections have it: those for requests and for notifications, those to Sentinel and those to the primary that it names,
// by URL and with the configuration of a program's own client.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	cert, key := ca.Sign(t, "client")
	for name, asks := range map[string]tls.ClientAuthType{"server": tls.NoClientCert, "client": tls.RequireAndVerifyClientCert} {
		files := []string{"caFile=" + ca.File}
		own := &tls.Config{RootCAs: ca.Pool()} //nolint:gosec // a Locker sets the oldest version
		if asks != tls.NoClientCert {
			files = append(files, "certFile="+cert, "keyFile="+key)
			own.Certificates = []tls.Certificate{signed(t, ca, "client")}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFront(t, ca, asks, redistest.Shared(t).Addr())
			takesOverTLS(t, openAt(t, secureURL(f.addr, files...)), f, name)
		})
		t.Run(name+" by the program's client", func(t *testing.T) {
			t.Parallel()
			f := startFront(t, ca, asks, redistest.Shared(t).Addr())
			c := goredis.NewClient(&goredis.Options{Addr: f.addr, Password: redistest.Password, TLSConfig: own})
			defer func() { _ = c.Close() }()
			l, err := New(t.Context(), c, WithPrefix("tls:"))
			if err != nil {
				t.Fatal(err)
			}
			takesOverTLS(t, l, f, name+"-own")
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+" by Sentinel", func(t *testing.T) {
			t.Parallel()
			f := startFront(t, ca, asks, redistest.Shared(t).Addr())
			sentinel := startFront(t, ca, asks, fakeSentinel(t, masterFacts(f.addr, 1, 0)))
			takesOverTLS(t, openAt(t, secureURL(sentinel.addr, append(files, "master=main")...)), f, name+"-sentinel")
			if sentinel.conns.Load() == 0 {
				t.Error("Sentinel was not asked with TLS")
			}
		})
	}
}

// What is wrong with TLS is said, with what helps. What a person must mend lasts.
func TestTLSIsRefused(t *testing.T) {
	t.Parallel()
	ca, strange := authority.New(t), authority.New(t)
	shared := redistest.Shared(t).Addr()
	secure, demands := startFront(t, ca, tls.NoClientCert, shared), startFront(t, ca, tls.RequireAndVerifyClientCert, shared)
	trusted := "caFile=" + ca.File
	cert, key := strange.Sign(t, "client")
	sentinel := startFront(t, ca, tls.NoClientCert, fakeSentinel(t, masterFacts(secure.addr, 1, 0)))
	for what, c := range map[string]struct {
		url     string
		lasting bool
		want    string
	}{
		"an unknown authority":      {secureURL(secure.addr), true, "caFile"},
		"another authority":         {secureURL(secure.addr, "caFile="+strange.File), true, "caFile"},
		"another name":              {secureURL(strings.Replace(secure.addr, "127.0.0.1", "localhost", 1), trusted), true, "caFile"},
		"an unknown Sentinel":       {secureURL(sentinel.addr, "master=main"), true, "caFile"},
		"no client's certificate":   {secureURL(demands.addr, trusted), true, "certFile"},
		"of another authority":      {secureURL(demands.addr, trusted, "certFile="+cert, "keyFile="+key), true, "certFile"},
		"TLS is demanded":           {redistest.At(secure.addr), false, withTLS},
		"TLS is demanded, Sentinel": {redistest.At(sentinel.addr) + "?master=main", false, withTLS},
		"no TLS":                    {secureURL(shared, trusted, "commandTimeout=500ms"), false, withoutTLS},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), c.url)
			if err == nil || driver.Lasting(err) != c.lasting || !strings.Contains(err.Error(), c.want) ||
				strings.Count(err.Error(), c.want) > 1 || strings.Contains(err.Error(), redistest.Password) {
				t.Errorf("%v, want %q, lasting: %v", err, c.want, c.lasting)
			}
		})
	}
	t.Run("the program's client", func(t *testing.T) {
		t.Parallel()
		c := goredis.NewClient(&goredis.Options{Addr: secure.addr, Password: redistest.Password,
			TLSConfig: &tls.Config{RootCAs: strange.Pool(), MinVersion: tls.VersionTLS12}})
		defer func() { _ = c.Close() }()
		if _, err := New(t.Context(), c); !driver.Lasting(err) || !strings.Contains(err.Error(), "certificate") {
			t.Error(err)
		}
	})
}

// Only as long as no server has answered, TLS may be what helps.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	for err, want := range map[error][2]string{ // without TLS, and with it
		io.EOF: {withTLS, withoutTLS}, context.DeadlineExceeded: {"", withoutTLS}, refused: {}, errors.New("x"): {}, nil: {},
	} {
		for i, uses := range []bool{false, true} {
			text := fmt.Sprint(err)
			if want[i] != "" {
				text += ": " + want[i]
			}
			s := &store{tls: uses}
			if got := s.unanswered(err); fmt.Sprint(got) != text {
				t.Errorf("TLS %v: %v becomes %v", uses, err, got)
			}
			s.answered.Store(true)
			if got := s.unanswered(err); fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("it has answered: %v becomes %v", err, got)
			}
		}
	}
}
