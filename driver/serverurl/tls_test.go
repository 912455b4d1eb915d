package serverurl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
)

// files writes a certificate and its key.
func files(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err1 := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	if err := errors.Join(err1, err2, write(certFile, "CERTIFICATE", cert), write(keyFile, "PRIVATE KEY", private)); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

func TestTLSConfig(t *testing.T) {
	t.Parallel()
	certFile, keyFile := files(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	config := func(scheme string, params url.Values) (*tls.Config, error) {
		u, err := form.Parse(scheme + "://h?" + params.Encode())
		if err != nil {
			t.Fatal(err)
		}
		return form.TLSConfig(u)
	}
	if c, err := config("db", nil); err != nil || c != nil {
		t.Errorf("without TLS: %v, %v", c, err)
	}
	c, err := config("dbs", nil)
	if err != nil || c.MinVersion != tls.VersionTLS12 || c.RootCAs != nil || c.Certificates != nil || c.InsecureSkipVerify {
		t.Errorf("with TLS: %+v, %v", c, err)
	}
	c, err = config("dbs", url.Values{ParamCAFile: {certFile}, ParamCertFile: {certFile}, ParamKeyFile: {keyFile}})
	if err != nil || c.GetClientCertificate == nil || c.RootCAs == nil || c.RootCAs.Equal(x509.NewCertPool()) {
		t.Errorf("with files: %+v, %v", c, err)
	}
	for _, wrong := range []struct {
		scheme string
		params url.Values
		want   string
	}{
		{"db", url.Values{ParamCAFile: {certFile}}, "caFile without TLS is invalid: must be in a URL with the scheme dbs"},
		{"db", url.Values{ParamKeyFile: {keyFile}}, "keyFile without TLS"},
		{"dbs", url.Values{ParamCAFile: {missing}}, "PEM certificates"},
		{"dbs", url.Values{ParamCAFile: {keyFile}}, "PEM certificates"},
		{"dbs", url.Values{ParamCertFile: {certFile}}, "given together"},
		{"dbs", url.Values{ParamKeyFile: {keyFile}}, "given together"},
		{"dbs", url.Values{ParamCertFile: {certFile}, ParamKeyFile: {missing}}, "readable files"},
		{"dbs", url.Values{ParamCertFile: {certFile}, ParamKeyFile: {certFile}}, "readable files"},
	} {
		if _, err := config(wrong.scheme, wrong.params); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s %v: %v, want an error with %q", wrong.scheme, wrong.params, err, wrong.want)
		}
	}
}

// A certificate that was renewed in its files is used by the next handshake. While one of the files is replaced and the other is not, the
// pair before is.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	ca, before := authority.New(t), authority.New(t)
	serverCert, serverKey := ca.Sign(t, "server")
	serverPair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{serverPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
		MinVersion: tls.VersionTLS12}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func(file, by string) {
		t.Helper()
		text, err := os.ReadFile(by)
		if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	oldCert, oldKey := before.Sign(t, "client")
	newCert, newKey := ca.Sign(t, "client")
	replace(certFile, oldCert)
	replace(keyFile, oldKey)
	client := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}
	if err := SetFiles(client, url.Values{ParamCAFile: {ca.File}, ParamCertFile: {certFile}, ParamKeyFile: {keyFile}}); err != nil {
		t.Fatal(err)
	}
	accepted := func() bool {
		ours, theirs := net.Pipe()
		defer func() { _ = ours.Close() }()
		go func() {
			defer func() { _ = theirs.Close() }()
			c := tls.Client(theirs, client)
			_ = c.HandshakeContext(t.Context())
			_, _ = c.Read(make([]byte, 1)) // it ends with the server's side
		}()
		return tls.Server(ours, server).HandshakeContext(t.Context()) == nil
	}
	if accepted() {
		t.Fatal("the server accepts the old certificate: the test shows nothing")
	}
	replace(certFile, newCert)
	if accepted() {
		t.Error("a certificate was used without its key")
	}
	replace(keyFile, newKey)
	if !accepted() {
		t.Error("the renewed certificate is not used")
	}
	replace(certFile, oldCert)
	if !accepted() {
		t.Error("the pair before is not used while one file is replaced")
	}
}
