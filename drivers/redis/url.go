package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCAFile           = "caFile"
	paramCertFile         = "certFile"
	paramCluster          = "cluster"
	paramCommandTimeout   = "commandTimeout"
	paramKeyFile          = "keyFile"
	paramMaster           = "master"
	paramPrefix           = "prefix"
	paramReplicas         = "replicas"
	paramSentinelPassword = "sentinelPassword" //nolint:gosec // a name
	paramSentinelUser     = "sentinelUser"
)

var params = []string{paramCAFile, paramCertFile, paramCluster, paramCommandTimeout, driver.ParamHistory, paramKeyFile, paramMaster,
	paramPrefix, paramReplicas, paramSentinelPassword, paramSentinelUser}

// envPassword names the variable with the password, which redis-cli and valkey-cli read as well.
const envPassword = "REDISCLI_AUTH" //nolint:gosec // a name

const (
	plainScheme = "redis"
	tlsScheme   = "rediss"
	form        = "of the form redis://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS, or rediss:// with TLS"

	defaultPort         = "6379"
	defaultSentinelPort = "26379"
	maxDatabase         = 1 << 16
)

// Open connects to the server of a URL with the scheme redis, or rediss with TLS. The password may be in the environment variable
// REDISCLI_AUTH instead. The database is 0 by default.
//
// With cluster=true, the hosts are some of those of a Redis Cluster. With the parameter master, they are those of Sentinel, which knows
// the primary of that name: sentinelUser and sentinelPassword are the login there. caFile, certFile and keyFile are for TLS. prefix,
// commandTimeout (a Go duration), history and replicas (numbers) are the values of [WithPrefix], [WithCommandTimeout], [WithHistory] and
// [WithReplicas]. They take precedence over opts.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	t, own, err := parse(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newConfig(append(slices.Clone(opts), own...))
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, t, c)
}

func malformed(reason string) error {
	return driver.Invalid("URL", "with scheme redis", form+": "+reason)
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
	// Otherwise a part of the password would pass for a host, a database or a parameter.
	if strings.Count(authority, "@") > 1 || strings.Contains(path+query, "@") || strings.Contains(rawURL, "#") {
		return t, nil, malformed("user, password and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?, %23 for #)")
	}
	o := &t.options
	u, values, err := driverutil.ParseURL("redis://x?"+query, form, params...)
	if err != nil || u == nil {
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
		if o.Username, o.Password, err = login(user); err != nil {
			return t, nil, err
		}
	}
	if o.Password == "" {
		o.Password = os.Getenv(envPassword)
	}
	if o.DB, err = database(path); err != nil {
		return t, nil, err
	}
	if own, err = options(values); err != nil {
		return t, nil, err
	}
	if o.TLSConfig, err = tlsConfig(scheme, values); err != nil {
		return t, nil, err
	}
	if err = t.address(hosts, values); err != nil {
		return t, nil, err
	}
	return t, own, nil
}

// address reads the hosts, and the parameters that say what they are.
func (t *target) address(hosts string, values url.Values) error {
	all, err := addresses(hosts, values.Has(paramMaster))
	if err != nil {
		return err
	}
	cluster, is := values.Get(paramCluster), values.Has(paramCluster)
	t.master, t.sentinelUser, t.sentinelPassword = values.Get(paramMaster), values.Get(paramSentinelUser), values.Get(paramSentinelPassword)
	switch {
	case is && cluster != "true" && cluster != "false":
		return driver.Invalid("URL parameter "+paramCluster, driver.Quote(cluster), "true or false")
	case cluster == "true" && t.master != "":
		return driver.Invalid("URL parameter "+paramCluster, "with Sentinel", "given without the parameter "+paramMaster)
	case cluster == "true" && t.options.DB != 0:
		return malformed("a Redis Cluster has the database 0 alone")
	case t.master == "" && t.sentinelUser+t.sentinelPassword != "":
		return driver.Invalid("URL parameter "+paramSentinelPassword, "without Sentinel", "given with the parameter master")
	case cluster == "true":
		t.cluster = all
	case t.master != "":
		t.sentinels = all
	case len(all) > 1:
		return malformed("several hosts need the parameter master, the name of the primary that Sentinel knows, or cluster=true")
	default:
		t.options.Addr = all[0]
	}
	return nil
}

// login reads USER:PASSWORD, USER or :PASSWORD.
func login(text string) (user, password string, err error) {
	escapedUser, escapedPassword, _ := strings.Cut(text, ":")
	user, err1 := url.PathUnescape(escapedUser)
	password, err2 := url.PathUnescape(escapedPassword)
	if err1 != nil || err2 != nil {
		return "", "", malformed("user and password must be percent-encoded")
	}
	if user != "" && password == "" && os.Getenv(envPassword) == "" {
		return "", "", malformed("a user needs a password, in the URL or in the environment variable " + envPassword)
	}
	return user, password, nil
}

func database(path string) (int, error) {
	if path == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(path)
	if err != nil || n < 0 || n > maxDatabase || strconv.Itoa(n) != path {
		return 0, malformed("the database is not a number such as 0 (is everything percent-encoded?)")
	}
	return n, nil
}

// options reads the parameters that are options.
func options(values url.Values) (own []Option, err error) {
	for name := range values {
		p := driverutil.Param{Name: name, Value: values.Get(name)}
		switch name {
		case paramPrefix:
			own = append(own, WithPrefix(p.Value))
		case paramCommandTimeout:
			d, err := p.Duration()
			if err != nil {
				return nil, err
			}
			own = append(own, WithCommandTimeout(d))
		case driver.ParamHistory:
			n, err := p.History()
			if err != nil {
				return nil, err
			}
			own = append(own, WithHistory(n))
		case paramReplicas:
			n, err := strconv.Atoi(p.Value)
			if err != nil || n < 0 || n > maxReplicas {
				return nil, driver.Invalid("URL parameter "+name, driver.Quote(p.Value), "a number from 0 to "+strconv.Itoa(maxReplicas))
			}
			own = append(own, WithReplicas(n))
		}
	}
	return own, nil
}

// tlsConfig reads the parameters for TLS. Without them the certificates of the system are trusted.
func tlsConfig(scheme string, values url.Values) (*tls.Config, error) {
	if scheme != tlsScheme {
		for _, name := range []string{paramCAFile, paramCertFile, paramKeyFile} {
			if values.Has(name) {
				return nil, driver.Invalid("URL parameter "+name, "without TLS", "in a URL with the scheme rediss")
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

// addresses reads hosts, which commas separate.
func addresses(hosts string, ofSentinel bool) (all []string, err error) {
	port := defaultPort
	if ofSentinel {
		port = defaultSentinelPort
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return nil, err
		}
		all = append(all, addr)
	}
	return all, nil
}

// hostPort reads HOST, HOST:PORT, [HOST] or [HOST]:PORT.
func hostPort(text, defaultPort string) (string, error) {
	if !strings.Contains(text[strings.LastIndexByte(text, ']')+1:], ":") {
		text += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, " %\\\"'") {
		return "", malformed("host or port are malformed, or the host is missing (is everything percent-encoded?)")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", malformed("a port is not a number from 1 to 65535 (is an @ missing after user and password?)")
	}
	return net.JoinHostPort(host, port), nil
}
