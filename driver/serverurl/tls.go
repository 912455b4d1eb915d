package serverurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// URL parameters that name files for TLS.
const (
	ParamCAFile   = "caFile"
	ParamCertFile = "certFile"
	ParamKeyFile  = "keyFile"
)

// FileParam returns one of the parameters for TLS that a URL has, or "".
func FileParam(params url.Values) string {
	for _, name := range []string{ParamCAFile, ParamCertFile, ParamKeyFile} {
		if params.Has(name) {
			return name
		}
	}
	return ""
}

// TLSConfig is that of a URL, or nil if its scheme is the one without TLS.
func (f Form) TLSConfig(u URL) (*tls.Config, error) {
	if u.TLS {
		c := &tls.Config{MinVersion: tls.VersionTLS12}
		return c, SetFiles(c, u.Params)
	}
	if name := FileParam(u.Params); name != "" {
		return nil, driver.Invalid("URL parameter "+name, "without TLS", "in a URL with the scheme "+f.TLSScheme)
	}
	return nil, nil //nolint:nilnil // no TLS
}

// SetFiles reads the files that the parameters name. Without caFile the certificates of the system are trusted. certFile and keyFile are
// read again for each connection, because whoever renews a certificate replaces its files; caFile is not.
func SetFiles(c *tls.Config, params url.Values) error {
	if params.Has(ParamCAFile) {
		pem, err := os.ReadFile(params.Get(ParamCAFile))
		c.RootCAs = x509.NewCertPool()
		if err != nil || !c.RootCAs.AppendCertsFromPEM(pem) {
			return driver.Invalid("URL parameter "+ParamCAFile, driver.Quote(params.Get(ParamCAFile)), "a readable file of PEM certificates")
		}
	}
	if params.Has(ParamCertFile) != params.Has(ParamKeyFile) {
		return driver.Invalid("URL parameters", ParamCertFile+" and "+ParamKeyFile, "given together")
	}
	if params.Has(ParamCertFile) {
		pair, err := tls.LoadX509KeyPair(params.Get(ParamCertFile), params.Get(ParamKeyFile))
		if err != nil {
			return driver.Invalid("URL parameters", ParamCertFile+" and "+ParamKeyFile, "readable files of a PEM certificate and its key")
		}
		c.GetClientCertificate = reread(pair, params.Get(ParamCertFile), params.Get(ParamKeyFile))
	}
	return nil
}

// reread returns a [tls.Config.GetClientCertificate] that reads the files. If they are no pair, such as while they are being replaced, it
// is the last one that was read.
func reread(pair tls.Certificate, certFile, keyFile string) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(&pair)
	return func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			last.Store(&now)
		}
		if present := last.Load(); request.SupportsCertificate(present) == nil {
			return present, nil
		}
		return &tls.Certificate{}, nil // none, as with tls.Config.Certificates
	}
}

// Untrusted returns the error of a connection with what helps, if it is that the server's certificate is not trusted. Else it returns nil.
func Untrusted(err error) error {
	var certificate *tls.CertificateVerificationError
	if !errors.As(err, &certificate) {
		return nil
	}
	return driver.Denied(fmt.Errorf("%w: correct the certificate, or the URL parameter %s", err, ParamCAFile))
}
