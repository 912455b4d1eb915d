package nats

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

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCAFile         = "caFile"
	paramCertFile       = "certFile"
	paramCreds          = "creds"
	paramInboxPrefix    = "inboxPrefix"
	paramKeyFile        = "keyFile"
	paramNKey           = "nkey"
	paramReplicas       = "replicas"
	paramRequestTimeout = "requestTimeout"
	paramTLS            = "tls"
)

var params = []string{paramCAFile, paramCertFile, paramCreds, driver.ParamHistory, paramInboxPrefix, paramKeyFile, paramNKey, paramReplicas,
	paramRequestTimeout, paramTLS}

const (
	urlScheme   = "nats"
	form        = "of the form nats://USER:PASSWORD@HOST1:PORT,HOST2:PORT/BUCKET?PARAMETERS, or with TOKEN@"
	defaultPort = "4222"
)

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

func malformed(reason string) error {
	return driver.Invalid("URL", "with scheme nats", form+": "+reason)
}

// parse reads a URL. Errors show nothing of the user, the password and the token.
func parse(rawURL string) (o natsgo.Options, bucket string, own []Option, err error) {
	o = natsgo.GetDefaultOptions()
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return o, "", nil, err
	}
	base, query, _ := strings.Cut(rawURL, "?")
	scheme, address, found := strings.Cut(base, "://")
	if !found || !strings.EqualFold(scheme, urlScheme) {
		return o, "", nil, malformed("// is missing")
	}
	authority, bucket, _ := strings.Cut(address, "/")
	// Otherwise a part of the password would pass for a host, a bucket or a parameter.
	if strings.Count(authority, "@") > 1 || strings.Contains(bucket+query, "@") || strings.Contains(rawURL, "#") {
		return o, "", nil, malformed("user, password, token and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?, %23 for #)")
	}
	if !validBucket.MatchString(bucket) {
		return o, "", nil, malformed("the bucket is missing after the hosts, or has other characters than letters, digits and _- " +
			"(is everything percent-encoded?)")
	}
	_, values, err := driverutil.ParseURL("nats://x?"+query, form, params...)
	if err != nil {
		return o, "", nil, err
	}
	for name, all := range values {
		if len(all) != 1 || all[0] == "" {
			return o, "", nil, driver.Invalid("URL parameter "+name, "without a value, or twice", "given once, with a value")
		}
	}
	hosts := authority
	login, rest, named := strings.Cut(authority, "@")
	if named {
		hosts = rest
		if err := setUser(&o, login); err != nil {
			return o, "", nil, err
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		name, err := hostPort(host)
		if err != nil {
			return o, "", nil, err
		}
		o.Servers = append(o.Servers, "nats://"+name)
	}
	if err := setTLS(&o, values); err != nil {
		return o, "", nil, err
	}
	if err := setFiles(&o, values, named); err != nil {
		return o, "", nil, err
	}
	own, err = options(values)
	return o, bucket, own, err
}

// setUser reads USER:PASSWORD or TOKEN.
func setUser(o *natsgo.Options, text string) error {
	escapedUser, escapedPassword, withPassword := strings.Cut(text, ":")
	user, err1 := url.PathUnescape(escapedUser)
	password, err2 := url.PathUnescape(escapedPassword)
	switch {
	case err1 != nil || err2 != nil:
		return malformed("user, password and token must be percent-encoded")
	case user == "" || withPassword && password == "":
		return malformed("before the @ there must be a user, a colon and a password, or a token")
	case withPassword:
		o.User, o.Password = user, password
	default:
		o.Token = user
	}
	return nil
}

// setFiles reads the files of credentials. Errors show nothing of what is in them.
func setFiles(o *natsgo.Options, values url.Values, named bool) error {
	creds, nkey := values.Get(paramCreds), values.Get(paramNKey)
	if creds != "" && nkey != "" || (creds != "" || nkey != "") && named {
		return driver.Invalid("URL parameters", paramCreds+" and "+paramNKey, "given alone, without the other and without a user")
	}
	switch {
	case creds != "":
		if _, err := os.ReadFile(creds); err != nil {
			return driver.Invalid("URL parameter "+paramCreds, driver.Quote(creds), "a readable file of credentials")
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

// setTLS reads the parameters for TLS. Without caFile the certificates of the system are trusted.
func setTLS(o *natsgo.Options, values url.Values) error {
	demanded, files := values.Get(paramTLS) == "true", false
	if values.Has(paramTLS) && !demanded && values.Get(paramTLS) != "false" {
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(values.Get(paramTLS)), "true or false")
	}
	for _, name := range []string{paramCAFile, paramCertFile, paramKeyFile} {
		files = files || values.Has(name)
	}
	if files && values.Has(paramTLS) && !demanded {
		return driver.Invalid("URL parameter "+paramTLS, "false", "true with files for TLS")
	}
	if !files && !demanded {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if values.Has(paramCAFile) {
		pem, err := os.ReadFile(values.Get(paramCAFile))
		c.RootCAs = x509.NewCertPool()
		if err != nil || !c.RootCAs.AppendCertsFromPEM(pem) {
			return driver.Invalid("URL parameter "+paramCAFile, driver.Quote(values.Get(paramCAFile)), "a readable file of PEM certificates")
		}
	}
	if values.Has(paramCertFile) != values.Has(paramKeyFile) {
		return driver.Invalid("URL parameters", paramCertFile+" and "+paramKeyFile, "given together")
	}
	if values.Has(paramCertFile) {
		pair, err := tls.LoadX509KeyPair(values.Get(paramCertFile), values.Get(paramKeyFile))
		if err != nil {
			return driver.Invalid("URL parameters", paramCertFile+" and "+paramKeyFile, "readable files of a PEM certificate and its key")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	o.Secure, o.TLSConfig = true, c
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
