package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCAFile         = "caFile"
	paramCertFile       = "certFile"
	paramKeyFile        = "keyFile"
	paramRequestTimeout = "requestTimeout"
)

var params = []string{paramCAFile, paramCertFile, driver.ParamHistory, paramKeyFile, paramRequestTimeout}

// envPassword names the variable with the password, which etcdctl reads as well.
const envPassword = "ETCDCTL_PASSWORD" //nolint:gosec // a name

const (
	plainScheme = "etcd"
	tlsScheme   = "etcds"
	form        = "of the form etcd://USER:PASSWORD@HOST1:PORT,HOST2:PORT/PREFIX?PARAMETERS, or etcds:// with TLS"
	defaultPort = "2379"
)

// Open connects to the members of a URL with the scheme etcd, or etcds with TLS. The path is the prefix of [WithPrefix]. The password of
// the user may be in the environment variable ETCDCTL_PASSWORD instead.
//
// caFile, certFile and keyFile are for TLS. requestTimeout (a Go duration) and history are the values of [WithRequestTimeout] and
// [WithHistory]. What the URL has takes precedence over opts.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	t, own, err := parse(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newSettings(append(opts[:len(opts):len(opts)], own...))
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, t, c)
}

func malformed(reason string) error {
	return driver.Invalid("URL", "with scheme etcd", form+": "+reason)
}

// parse reads a URL. Errors show nothing of the user and the password.
func parse(rawURL string) (t target, own []Option, err error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return t, nil, err
	}
	base, query, _ := strings.Cut(rawURL, "?")
	scheme, address, found := strings.Cut(base, "://")
	if scheme = strings.ToLower(scheme); !found || scheme != plainScheme && scheme != tlsScheme {
		return t, nil, malformed("// is missing")
	}
	authority, path, _ := strings.Cut(address, "/")
	// Otherwise a part of the password would pass for a host, a prefix or a parameter.
	if strings.Count(authority, "@") > 1 || strings.Contains(path+query, "@") || strings.Contains(rawURL, "#") {
		return t, nil, malformed("user, password and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?, %23 for #)")
	}
	_, values, err := driverutil.ParseURL("etcd://x?"+query, form, params...)
	if err != nil {
		return t, nil, err
	}
	for name, all := range values {
		if len(all) != 1 || all[0] == "" {
			return t, nil, driver.Invalid("URL parameter "+name, "without a value, or twice", "given once, with a value")
		}
	}
	hosts := authority
	if user, rest, found := strings.Cut(authority, "@"); found {
		hosts = rest
		if t.username, t.password, err = userOf(user); err != nil {
			return t, nil, err
		}
	}
	if t.tls, err = tlsConfig(scheme, values); err != nil {
		return t, nil, err
	}
	for host := range strings.SplitSeq(hosts, ",") {
		name, err := hostPort(host)
		if err != nil {
			return t, nil, err
		}
		t.add(name)
	}
	own, err = options(path, values)
	return t, own, err
}

// add adds a member at host:port.
func (t *target) add(name string) {
	scheme := "http://"
	if t.tls != nil {
		scheme = "https://"
	}
	t.members = append(t.members, &member{url: scheme + name, name: name})
}

// userOf reads USER:PASSWORD or USER.
func userOf(text string) (user, password string, err error) {
	escapedUser, escapedPassword, _ := strings.Cut(text, ":")
	user, err1 := url.PathUnescape(escapedUser)
	password, err2 := url.PathUnescape(escapedPassword)
	if err1 != nil || err2 != nil {
		return "", "", malformed("user and password must be percent-encoded")
	}
	if password == "" {
		password = os.Getenv(envPassword)
	}
	if user == "" || password == "" {
		return "", "", malformed("before the @ there must be a user, and a password there or in the environment variable " + envPassword)
	}
	return user, password, nil
}

// options reads the prefix, and the parameters that are options.
func options(path string, values url.Values) (own []Option, err error) {
	if path != "" {
		if len(path) > maxPrefix || !validPrefix.MatchString(path) {
			return nil, malformed("the prefix has 1 to 200 letters, digits and ._-, in parts that / separates (is everything percent-encoded?)")
		}
		own = append(own, WithPrefix(path))
	}
	if values.Has(paramRequestTimeout) {
		d, err := driverutil.Param{Name: paramRequestTimeout, Value: values.Get(paramRequestTimeout)}.Duration()
		if err != nil {
			return nil, err
		}
		own = append(own, WithRequestTimeout(d))
	}
	if values.Has(driver.ParamHistory) {
		n, err := driver.HistoryParam(values)
		if err != nil {
			return nil, err
		}
		own = append(own, WithHistory(n))
	}
	return own, nil
}

// tlsConfig reads the parameters for TLS. Without them the certificates of the system are trusted.
func tlsConfig(scheme string, values url.Values) (*tls.Config, error) {
	if scheme != tlsScheme {
		for _, name := range []string{paramCAFile, paramCertFile, paramKeyFile} {
			if values.Has(name) {
				return nil, driver.Invalid("URL parameter "+name, "without TLS", "in a URL with the scheme etcds")
			}
		}
		return nil, nil //nolint:nilnil // no TLS
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if values.Has(paramCAFile) {
		pem, err := os.ReadFile(values.Get(paramCAFile))
		c.RootCAs = x509.NewCertPool()
		if err != nil || !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, driver.Invalid("URL parameter "+paramCAFile, driver.Quote(values.Get(paramCAFile)), "a readable file of PEM certificates")
		}
	}
	if values.Has(paramCertFile) != values.Has(paramKeyFile) {
		return nil, driver.Invalid("URL parameters", paramCertFile+" and "+paramKeyFile, "given together")
	}
	if values.Has(paramCertFile) {
		pair, err := tls.LoadX509KeyPair(values.Get(paramCertFile), values.Get(paramKeyFile))
		if err != nil {
			return nil, driver.Invalid("URL parameters", paramCertFile+" and "+paramKeyFile, "readable files of a PEM certificate and its key")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// hostPort reads HOST, HOST:PORT, [HOST] or [HOST]:PORT.
func hostPort(text string) (string, error) {
	if !strings.Contains(text[strings.LastIndexByte(text, ']')+1:], ":") {
		text += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsFunc(host, isNoHostRune) {
		return "", malformed("host or port are malformed, or the host is missing (is everything percent-encoded?)")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", malformed("a port is not a number from 1 to 65535 (is an @ missing after user and password?)")
	}
	return net.JoinHostPort(host, port), nil
}

func isNoHostRune(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_:", r) // the colons are those of IPv6
}

// targetOf reads the configuration of a program. Errors show no address: it may have a password.
func targetOf(c Config) (t target, err error) {
	const rule = "addresses such as https://etcd1:2379, of one scheme, without a path and a user"
	if c.TLS != nil {
		t.tls = c.TLS.Clone()
		t.tls.MinVersion = max(t.tls.MinVersion, tls.VersionTLS12)
		t.tls.NextProtos = nil // that of a client of etcd is HTTP/2, of which the members would then send an answer
	}
	for i, endpoint := range c.Endpoints {
		scheme, address, found := strings.Cut(endpoint, "://")
		if !found {
			scheme, address = "http", endpoint
			if c.TLS != nil {
				scheme = "https"
			}
		}
		if scheme == "https" && t.tls == nil && i == 0 {
			t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		name, err := hostPort(strings.TrimSuffix(address, "/"))
		if err != nil || scheme != "https" && scheme != "http" || (scheme == "https") != (t.tls != nil) || strings.ContainsAny(name, "/@?#") {
			return t, driver.Invalid("Config.Endpoints", "with another one", rule)
		}
		t.add(name)
	}
	switch {
	case len(t.members) == 0:
		return t, driver.Invalid("Config.Endpoints", "without an address", rule)
	case (c.Username == "") != (c.Password == ""):
		return t, driver.Invalid("Config.Username", "without Config.Password, or the reverse", "given together")
	}
	t.username, t.password = c.Username, c.Password
	return t, nil
}
