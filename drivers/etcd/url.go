package etcd

import (
	"context"
	"crypto/tls"
	"net/url"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

const paramRequestTimeout = "requestTimeout"

var form = serverurl.Form{
	Scheme: "etcd", TLSScheme: "etcds", DefaultPort: "2379",
	Text: "of the form etcd://USER:PASSWORD@HOST1:PORT,HOST2:PORT/PREFIX?PARAMETERS, or etcds:// with TLS",
	Params: []string{serverurl.ParamCAFile, serverurl.ParamCertFile, driver.ParamHistory, serverurl.ParamKeyFile,
		paramRequestTimeout},
}

// envPassword names the variable with the password, which etcdctl reads as well.
const envPassword = "ETCDCTL_PASSWORD" //nolint:gosec // a name

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

// parse reads a URL. Errors show nothing of the user and the password.
func parse(rawURL string) (t target, own []Option, err error) {
	u, err := form.Parse(rawURL)
	if err != nil {
		return t, nil, err
	}
	if u.Named && u.Password == "" {
		u.Password = os.Getenv(envPassword)
	}
	if u.Named && (u.User == "" || u.Password == "") {
		return t, nil, form.Malformed("before the @ there must be a user, and a password there or in the environment variable " + envPassword)
	}
	t.username, t.password = u.User, u.Password
	if t.tls, err = form.TLSConfig(u); err != nil {
		return t, nil, err
	}
	members, err := form.Addresses(u.Hosts)
	if err != nil {
		return t, nil, err
	}
	for _, name := range members {
		t.add(name)
	}
	own, err = options(u.Path, u.Params)
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

// options reads the prefix, and the parameters that are options.
func options(path string, values url.Values) (own []Option, err error) {
	if path != "" {
		if len(path) > maxPrefix || !validPrefix.MatchString(path) {
			return nil, form.Malformed("the prefix has 1 to 200 letters, digits and ._-, in parts that / separates (is everything percent-encoded?)")
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

// targetOf reads the configuration of a program. Errors show no address: it may have a password.
func targetOf(c Config) (t target, err error) {
	const rule = "addresses such as https://etcd1:2379, of one scheme, without a path and a user"
	if c.TLS != nil {
		t.tls = c.TLS.Clone()
		t.tls.MinVersion = max(t.tls.MinVersion, tls.VersionTLS12)
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
		name, err := form.Address(strings.TrimSuffix(address, "/"))
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
