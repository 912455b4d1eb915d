// Package authority gives tests of TLS a certificate authority, which no machine trusts, and certificates of it in files.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// File has its own certificate.
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority, whose files are removed at the end of the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir()}
	a.File, _ = a.Sign(tb, "authority")
	return a
}

// Pool is what a client needs that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Sign makes a certificate for usages, and its key: without any, for a server at 127.0.0.1 and for a client, as some servers are both. The
// first one is that of the authority. The paths are written as URLs have them.
func (a *Authority) Sign(tb testing.TB, commonName string, usages ...x509.ExtKeyUsage) (certFile, keyFile string) {
	tb.Helper()
	if len(usages) == 0 {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usages, BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(err)
	if a.cert == nil {
		a.key = key
		a.cert, err = x509.ParseCertificate(der)
		must(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	write := func(name string, block pem.Block) string {
		path := filepath.Join(a.dir, serial.String()+name)
		must(os.WriteFile(path, pem.EncodeToMemory(&block), 0o600))
		return filepath.ToSlash(path)
	}
	return write(".pem", pem.Block{Type: "CERTIFICATE", Bytes: der}), write("-key.pem", pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
