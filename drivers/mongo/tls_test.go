package mongo

import (
	"context"
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
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// certificate writes a certificate that signs itself, with its key, into a file.
func certificate(t *testing.T, template x509.Certificate) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(1), pkix.Name{CommonName: "holdfast test"}
	template.KeyUsage, template.IsCA, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign, true, true
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	file := filepath.Join(t.TempDir(), "server.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A server with TLS and a URL without, the reverse, and certificates that are not accepted: each error says what to do.
func TestTLSErrors(t *testing.T) {
	t.Parallel()
	now := time.Now()
	from, until := now.Add(-time.Hour), now.Add(time.Hour)
	right := certificate(t, x509.Certificate{NotBefore: from, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	other := certificate(t, x509.Certificate{NotBefore: from, NotAfter: until, DNSNames: []string{"db.example.com"}})
	server := func(mode, file string, more ...string) string {
		rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Args: append([]string{"--tlsMode", mode, "--tlsCertificateKeyFile", file,
			"--tlsCAFile", file}, more...)})
		return rs.Hosts()[0]
	}
	const anyClient = "--tlsAllowConnectionsWithoutCertificates"
	withTLS, wrongName := server("preferTLS", right, anyClient), server("preferTLS", other, anyClient)
	plain := strings.TrimPrefix(mongotest.Standalone(t), "mongodb://")
	plain, _, _ = strings.Cut(plain, "/")
	for url, want := range map[string]string{
		plain + "/app?directConnection=true&tls=true": "closed the connection without an answer); the server may " +
			"require TLS (tls=true) or a client's certificate (tlsCertificateKeyFile=FILE), or use no TLS (tls=false)",
		withTLS + "/app?directConnection=true&tls=true": "has a certificate of an unknown authority); name the " +
			"authority's certificate with tlsCAFile=FILE",
		wrongName + "/app?directConnection=true&tls=true&tlsCAFile=" +
			other: "has a certificate for another host); use a host name that is in the certificate",
	} {
		wantOpenError(t, url, want)
	}
	ctx := bounded(t)
	l, err := Open(ctx, "mongodb://"+withTLS+"/app?directConnection=true&tls=true&tlsCAFile="+right)
	if err != nil {
		t.Fatal(err)
	}
	closeLocker(t, l)
	// From here on the server accepts connections with TLS alone.
	client := mongotest.Connect(t, "mongodb://"+withTLS+"/?directConnection=true&tls=true&tlsCAFile="+right)
	if err := client.Database("admin").RunCommand(ctx, doc{{Key: "setParameter", Value: 1},
		{Key: "tlsMode", Value: "requireTLS"}}).Err(); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, withTLS+"/app?directConnection=true", "closed the connection without an answer); the server may require TLS (tls=true)")
}

// wantOpenError opens a URL that cannot be opened. Open tries until its context ends, and can name a reason only after the
// first answer: on a slow machine it has more time.
func wantOpenError(t *testing.T, url, want string) {
	t.Helper()
	for limit := 5 * time.Second; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := Open(ctx, "mongodb://"+url)
		cancel()
		if err != nil && strings.Contains(err.Error(), want) {
			return
		}
		if err == nil || limit > 30*time.Second {
			t.Errorf("%s\ngot  %v\nwant %s", url, err, want)
			return
		}
	}
}

// A direct connection to a secondary is refused at once, with the reason.
func TestDirectConnectionToASecondary(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 2})
	primary, err := rs.Primary(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	secondary := rs.Hosts()[1-primary]
	_, err = Open(bounded(t), "mongodb://"+secondary+"/app?directConnection=true")
	want := "directConnection=true connects to " + secondary + ", which is not the primary, the primary is " + rs.Hosts()[primary] +
		"; give replicaSet=rs and no directConnection"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
