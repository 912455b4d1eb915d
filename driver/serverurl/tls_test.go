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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
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
	if err != nil || len(c.Certificates) != 1 || c.RootCAs == nil || c.RootCAs.Equal(x509.NewCertPool()) {
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
