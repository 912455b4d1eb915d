package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// The TLS of a program's own client of etcd asks for HTTP/2, which that speaks. The driver does not.
func TestTLSOfAnotherClient(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{"+fakeHeader+"}")
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	own := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	target, err := targetOf(Config{Endpoints: []string{s.URL}, TLS: own})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	used := newStore(target, c)
	defer func() { _ = used.close(t.Context()) }()
	if _, err := used.Get(t.Context(), "k"); err != nil || len(own.NextProtos) != 1 {
		t.Errorf("%v, and the program's own configuration has %v", err, own.NextProtos)
	}
}

// A member that demands a client's certificate serves locks to those that have one, also with a user. It takes no user from a certificate.
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
		"no TLS":            {urlOf(s.Addr()), false, "the scheme is etcds"},
		"unknown authority": {"etcds://" + s.Addr(), true, "caFile"},
		"no certificate":    {"etcds://" + s.Addr() + "?caFile=" + caFile, false, "certificate"},
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
	named, namedKey := ca.Sign(t, appUser)
	if _, err := Open(t.Context(), rawURL("", named, namedKey)); !errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "common name") {
		t.Errorf("a certificate with a common name: %v", err)
	}
}
