package nats

import (
	"context"
	"crypto/tls"
	"net/url"
	"os"
	"strconv"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// URL parameters of this driver.
const (
	paramCreds          = "creds"
	paramInboxPrefix    = "inboxPrefix"
	paramNKey           = "nkey"
	paramReplicas       = "replicas"
	paramRequestTimeout = "requestTimeout"
	paramTLS            = "tls"
)

var form = serverurl.Form{
	Scheme: "nats", DefaultPort: "4222",
	Text: "of the form nats://USER:PASSWORD@HOST1:PORT,HOST2:PORT/BUCKET?PARAMETERS, or with TOKEN@",
	Params: []string{serverurl.ParamCAFile, serverurl.ParamCertFile, paramCreds, driver.ParamHistory, paramInboxPrefix, serverurl.ParamKeyFile,
		paramNKey, paramReplicas, paramRequestTimeout, paramTLS},
}

// Open connects to the servers of a URL with the scheme nats. Before an @ there may be a user with a password, or a token. The path is the
// bucket.
//
// creds is a file of credentials, and nkey one with the seed of an NKey. tls=true demands TLS, and so do caFile, certFile and keyFile.
// inboxPrefix, replicas, requestTimeout (a Go duration) and history are the values of [WithInboxPrefix], [WithReplicas],
// [WithRequestTimeout] and [WithHistory]. What the URL has takes precedence over opts.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	o, bucket, own, err := parse(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newSettings(bucket, append(opts[:len(opts):len(opts)], own...))
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, o, c)
}

// parse reads a URL. Errors show nothing of the user, the password and the token.
func parse(rawURL string) (o natsgo.Options, bucket string, own []Option, err error) {
	o = natsgo.GetDefaultOptions()
	u, err := form.Parse(rawURL)
	if err != nil {
		return o, "", nil, err
	}
	if !validBucket.MatchString(u.Path) {
		return o, "", nil, form.Malformed("the bucket is missing after the hosts, or has other characters than letters, digits and _- " +
			"(is everything percent-encoded?)")
	}
	switch {
	case u.Named && (u.User == "" || u.Colon && u.Password == ""):
		return o, "", nil, form.Malformed("before the @ there must be a user, a colon and a password, or a token")
	case u.Colon:
		o.User, o.Password = u.User, u.Password
	default:
		o.Token = u.User
	}
	addresses, err := form.Addresses(u.Hosts)
	if err != nil {
		return o, "", nil, err
	}
	for _, address := range addresses {
		o.Servers = append(o.Servers, "nats://"+address)
	}
	if err := setTLS(&o, u.Params); err != nil {
		return o, "", nil, err
	}
	if err := setFiles(&o, u.Params, u.Named); err != nil {
		return o, "", nil, err
	}
	own, err = options(u.Params)
	return o, u.Path, own, err
}

// setFiles reads the files of credentials. Errors show nothing of what is in them.
func setFiles(o *natsgo.Options, values url.Values, named bool) error {
	creds, nkey := values.Get(paramCreds), values.Get(paramNKey)
	if creds != "" && nkey != "" || (creds != "" || nkey != "") && named {
		return driver.Invalid("URL parameters", paramCreds+" and "+paramNKey, "given alone, without the other and without a user")
	}
	switch {
	case creds != "":
		if _, err := os.ReadFile(creds); err != nil { // not shown: it may be a seed by mistake
			return driver.Invalid("URL parameter "+paramCreds, "of the URL", "a readable file of credentials")
		}
		return natsgo.UserCredentials(creds)(o)
	case nkey != "":
		option, err := natsgo.NkeyOptionFromSeed(nkey)
		if err != nil {
			return driver.Invalid("URL parameter "+paramNKey, "of the URL", "a readable file with the seed of a user's NKey")
		}
		return option(o)
	}
	return nil
}

// setTLS reads the parameters for TLS, which files demand, too.
func setTLS(o *natsgo.Options, values url.Values) error {
	demanded, files := values.Get(paramTLS) == "true", serverurl.FileParam(values) != ""
	switch {
	case values.Has(paramTLS) && !demanded && values.Get(paramTLS) != "false":
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(values.Get(paramTLS)), "true or false")
	case files && values.Has(paramTLS) && !demanded:
		return driver.Invalid("URL parameter "+paramTLS, "false", "true with files for TLS")
	case files || demanded:
		o.Secure, o.TLSConfig = true, &tls.Config{MinVersion: tls.VersionTLS12}
		return serverurl.SetFiles(o.TLSConfig, values)
	}
	return nil
}

// options reads the parameters that are options.
func options(values url.Values) (own []Option, err error) {
	if values.Has(paramRequestTimeout) {
		d, err := driverutil.Param{Name: paramRequestTimeout, Value: values.Get(paramRequestTimeout)}.Duration()
		if err != nil {
			return nil, err
		}
		own = append(own, WithRequestTimeout(d))
	}
	if values.Has(paramReplicas) {
		n, err := strconv.Atoi(values.Get(paramReplicas))
		if err != nil || n == 0 {
			return nil, driver.Invalid("URL parameter "+paramReplicas, driver.QuoteName(values.Get(paramReplicas)), "1, 3 or 5")
		}
		own = append(own, WithReplicas(n))
	}
	if values.Has(paramInboxPrefix) {
		own = append(own, WithInboxPrefix(values.Get(paramInboxPrefix)))
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
