package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// The driver uses the TLS of a program's own client, and asks for HTTP/2 whatever that asks for. It leaves it as it is.
func TestTLSOfAnotherClient(t *testing.T) {
	t.Parallel()
	f := &fake{answers: map[string]reply{}}
	s := httptest.NewUnstartedServer(f.handler(t))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	own := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	used := storeWith(t, Config{Endpoints: []string{s.URL}, TLS: own})
	if _, err := used.Get(t.Context(), "k"); err != nil || len(own.NextProtos) != 1 || own.NextProtos[0] != "http/1.1" {
		t.Errorf("%v, and the program's own configuration has %v", err, own.NextProtos)
	}
}

// storeWith makes the store of a Locker for a program's configuration.
func storeWith(t *testing.T, config Config, opts ...Option) *store {
	t.Helper()
	target, err := targetOf(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newSettings(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(target, c)
	t.Cleanup(func() { _ = s.close(context.WithoutCancel(t.Context())) })
	return s
}

// A member that demands a client's certificate serves locks to those that have one, also with a user. The common name of a certificate is
// a user, too.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	caFile := ca.File
	serverCert, serverKey := ca.Sign(t, "")
	cert, key := ca.Sign(t, "")
	s := etcdtest.StartTLS(t, cert, key, "--cert-file="+serverCert, "--key-file="+serverKey, "--client-cert-auth", "--trusted-ca-file="+caFile)
	rawURL := func(user, certFile, keyFile string) string {
		return "etcds://" + user + s.Addr() + "?requestTimeout=30s&caFile=" + caFile + "&certFile=" + certFile + "&keyFile=" + keyFile
	}
	l := openAt(t, rawURL("", cert, key))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	next(t, follow(t, l.store, "n"))
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := New(t.Context(), Config{Endpoints: []string{s.Addr()}, TLS: &tls.Config{RootCAs: ca.Pool(),
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.TryAcquire(t.Context(), request("n", "b")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	if err := own.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for what, c := range map[string]struct {
		url     string
		lasting bool
		want    string
	}{
		"no TLS":               {urlOf(s.Addr()), false, "the scheme is etcds"},
		"TLS with a plain one": {"etcds://" + etcdtest.Shared(t).Addr(), false, "the scheme is etcd"},
		"unknown authority":    {"etcds://" + s.Addr(), true, "caFile"},
		"no certificate":       {"etcds://" + s.Addr() + "?caFile=" + caFile, false, "certificate"},
	} {
		if _, err := Open(t.Context(), c.url); err == nil || driver.Lasting(err) != c.lasting || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q, lasting: %v", what, err, c.want, c.lasting)
		}
	}
	if err := s.EnableLogin(t.Context(), defaultPrefix+"/", map[string]string{appUser: appPassword}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("without the login that is demanded now: %v", err)
	}
	if err := openAt(t, rawURL(appUser+":"+appPassword+"@", cert, key)).Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	named, namedKey := ca.Sign(t, appUser, x509.ExtKeyUsageClientAuth)
	lease, err = openAt(t, rawURL("", named, namedKey)).TryAcquire(t.Context(), request("n", "c"))
	if err != nil || lease.Token == 0 {
		t.Errorf("the user of a certificate: %+v, %v", lease, err)
	}
	unknown, unknownKey := ca.Sign(t, "nobody", x509.ExtKeyUsageClientAuth)
	if _, err := Open(t.Context(), rawURL("", unknown, unknownKey)); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

// The certificate of a member need not be valid for clients.
func TestTLSWithoutGateway(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	caFile := ca.File
	serverCert, serverKey := ca.Sign(t, "", x509.ExtKeyUsageServerAuth)
	cert, key := ca.Sign(t, "", x509.ExtKeyUsageClientAuth)
	s := etcdtest.StartTLS(t, cert, key, "--cert-file="+serverCert, "--key-file="+serverKey, "--client-cert-auth", "--trusted-ca-file="+caFile,
		"--enable-grpc-gateway=false")
	l := openAt(t, "etcds://"+s.Addr()+"?requestTimeout=30s&caFile="+caFile+"&certFile="+cert+"&keyFile="+key)
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Error(err)
	}
	next(t, follow(t, l.store, "n"))
}
