package redis

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// URL parameters of this driver.
const (
	paramCluster          = "cluster"
	paramCommandTimeout   = "commandTimeout"
	paramMaster           = "master"
	paramPrefix           = "prefix"
	paramReplicas         = "replicas"
	paramSentinelPassword = "sentinelPassword" //nolint:gosec // a name
	paramSentinelUser     = "sentinelUser"
)

var form = serverurl.Form{
	Scheme: "redis", TLSScheme: "rediss", DefaultPort: "6379",
	Text: "of the form redis://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS, or rediss:// with TLS",
	Params: []string{serverurl.ParamCAFile, serverurl.ParamCertFile, paramCluster, paramCommandTimeout, driver.ParamHistory,
		serverurl.ParamKeyFile, paramMaster, paramPrefix, paramReplicas, paramSentinelPassword, paramSentinelUser},
}

// envPassword names the variable with the password, which redis-cli and valkey-cli read as well.
const envPassword = "REDISCLI_AUTH" //nolint:gosec // a name

const (
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

// parse reads a URL. Errors show nothing of the user and the password.
func parse(rawURL string) (t target, own []Option, err error) {
	u, err := form.Parse(rawURL)
	if err != nil {
		return t, nil, err
	}
	o := &t.options
	if o.Username, o.Password = u.User, u.Password; o.Password == "" {
		o.Password = os.Getenv(envPassword)
	}
	if o.Username != "" && o.Password == "" {
		return t, nil, form.Malformed("a user needs a password, in the URL or in the environment variable " + envPassword)
	}
	if o.DB, err = database(u.Path); err != nil {
		return t, nil, err
	}
	if own, err = options(u.Params); err != nil {
		return t, nil, err
	}
	if o.TLSConfig, err = form.TLSConfig(u); err != nil {
		return t, nil, err
	}
	if err = t.address(u.Hosts, u.Params); err != nil {
		return t, nil, err
	}
	return t, own, nil
}

// address reads the hosts, and the parameters that say what they are.
func (t *target) address(hosts string, values url.Values) error {
	of := form
	if values.Has(paramMaster) {
		of.DefaultPort = defaultSentinelPort
	}
	all, err := of.Addresses(hosts)
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
		return form.Malformed("a Redis Cluster has the database 0 alone")
	case t.master == "" && t.sentinelUser+t.sentinelPassword != "":
		return driver.Invalid("URL parameter "+paramSentinelPassword, "without Sentinel", "given with the parameter master")
	case t.sentinelUser != "" && t.sentinelPassword == "": // the client library would not log in
		return driver.Invalid("URL parameter "+paramSentinelUser, "without a password", "given with the parameter "+paramSentinelPassword)
	case cluster == "true":
		t.cluster = all
	case t.master != "":
		t.sentinels = all
	case len(all) > 1:
		return form.Malformed("several hosts need the parameter master, the name of the primary that Sentinel knows, or cluster=true")
	default:
		t.options.Addr = all[0]
	}
	return nil
}

func database(path string) (int, error) {
	if path == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(path)
	if err != nil || n < 0 || n > maxDatabase || strconv.Itoa(n) != path {
		return 0, form.Malformed("the database is not a number such as 0 (is everything percent-encoded?)")
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
