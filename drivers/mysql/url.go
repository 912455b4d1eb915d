package mysql

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

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCAFile         = "caFile"
	paramCertFile       = "certFile"
	paramCommandTimeout = "commandTimeout"
	paramKeyFile        = "keyFile"
	paramTable          = "table"
	paramTLS            = "tls"
)

var params = []string{paramCAFile, paramCertFile, paramCommandTimeout, driver.ParamHistory, paramKeyFile, paramTable, paramTLS}

// Values of the parameter tls, which are those of the client library's data sources, too.
const (
	tlsVerify    = "true"
	tlsUnchecked = "skip-verify"
	tlsPreferred = "preferred"
	tlsOff       = "false"
)

// envPassword names the variable with the password, which the client programs of the servers read as well.
const envPassword = "MYSQL_PWD" //nolint:gosec // a name

const (
	urlScheme   = "mysql"
	form        = "of the form mysql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS"
	defaultPort = "3306"
)

// Open connects to the servers of a URL with the scheme mysql. The password may be in the environment variable MYSQL_PWD instead. Of
// several hosts, which commas separate, it uses the first that takes writes.
//
// table names the table of the locks. tls is true (TLS with a certificate that is verified), skip-verify, preferred (if the server can)
// or false. The default is preferred, or true with caFile, certFile or keyFile. commandTimeout (a Go duration) and history (a number) are
// the values of [WithCommandTimeout] and [WithHistory]. They take precedence over opts.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	hosts, own, err := parse(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	c, err := newConfig(append(slices.Clone(opts), own...))
	if err != nil {
		return nil, connectError(err)
	}
	s := &store{config: c}
	s.db, s.own = newPool(hosts, c.timeout)
	return open(ctx, s)
}

func malformed(reason string) error {
	return driver.Invalid("URL", "with scheme mysql", form+": "+reason)
}

// parse reads a URL. Errors show nothing of the user and the password.
func parse(rawURL string) (hosts []*gomysql.Config, own []Option, err error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return nil, nil, err
	}
	base, query, _ := strings.Cut(rawURL, "?")
	scheme, address, found := strings.Cut(base, "://")
	if !found || strings.ToLower(scheme) != urlScheme {
		return nil, nil, malformed("// is missing")
	}
	authority, database, _ := strings.Cut(address, "/")
	// Otherwise a part of the password would pass for a host, a database or a parameter.
	if strings.Count(authority, "@") > 1 || strings.Contains(database+query, "@") || strings.Contains(rawURL, "#") {
		return nil, nil, malformed("user, password and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?, %23 for #)")
	}
	_, values, err := driverutil.ParseURL(urlScheme+"://x?"+query, form, params...)
	if err != nil {
		return nil, nil, err
	}
	for name, all := range values {
		if len(all) != 1 || all[0] == "" {
			return nil, nil, driver.Invalid("URL parameter "+name, "without a value, or twice", "given once, with a value")
		}
	}
	c := gomysql.NewConfig()
	c.Net, c.DBName, c.Logger = "tcp", database, &gomysql.NopLogger{}
	c.ConnectionAttributes = "program_name:holdfast"
	addresses := authority
	if user, rest, found := strings.Cut(authority, "@"); found {
		addresses = rest
		if c.User, c.Passwd, err = login(user); err != nil {
			return nil, nil, err
		}
	}
	if c.Passwd == "" {
		c.Passwd = os.Getenv(envPassword)
	}
	if !validDatabase.MatchString(database) {
		return nil, nil, malformed("the database is missing, or has other characters than letters, digits and _$- " +
			"(is everything percent-encoded?)")
	}
	if err = setTLS(c, values); err != nil {
		return nil, nil, err
	}
	if own, err = options(database, values); err != nil {
		return nil, nil, err
	}
	for host := range strings.SplitSeq(addresses, ",") {
		one := c.Clone()
		if one.Addr, err = hostPort(host); err != nil {
			return nil, nil, err
		}
		hosts = append(hosts, one)
	}
	return hosts, own, nil
}

// login reads USER:PASSWORD or USER.
func login(text string) (user, password string, err error) {
	escapedUser, escapedPassword, _ := strings.Cut(text, ":")
	user, err1 := url.PathUnescape(escapedUser)
	password, err2 := url.PathUnescape(escapedPassword)
	if err1 != nil || err2 != nil {
		return "", "", malformed("user and password must be percent-encoded")
	}
	return user, password, nil
}

// options reads the parameters that are options.
func options(database string, values url.Values) (own []Option, err error) {
	table := values.Get(paramTable)
	own = append(own, func(c *config) {
		if c.database = database; table != "" {
			c.table = table
		}
	})
	for name := range values {
		p := driverutil.Param{Name: name, Value: values.Get(name)}
		switch name {
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
		}
	}
	return own, nil
}

// setTLS reads the parameters for TLS. Without caFile the certificates of the system are trusted.
func setTLS(c *gomysql.Config, values url.Values) error {
	files := values.Has(paramCAFile) || values.Has(paramCertFile) || values.Has(paramKeyFile)
	mode := values.Get(paramTLS)
	switch {
	case mode == "" && files:
		mode = tlsVerify
	case mode == "":
		mode = tlsPreferred
	case !slices.Contains([]string{tlsVerify, tlsUnchecked, tlsPreferred, tlsOff}, mode):
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(mode), "true, skip-verify, preferred or false")
	case files && mode != tlsVerify:
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(mode), "true with "+paramCAFile+", "+paramCertFile+" and "+paramKeyFile)
	}
	switch mode {
	case tlsOff:
		return nil
	case tlsVerify:
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // the user asks for it, or for TLS if possible
		c.AllowFallbackToPlaintext = mode == tlsPreferred
	}
	if values.Has(paramCAFile) {
		pem, err := os.ReadFile(values.Get(paramCAFile))
		c.TLS.RootCAs = x509.NewCertPool()
		if err != nil || !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
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
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// hostPort reads HOST, HOST:PORT, [HOST] or [HOST]:PORT.
func hostPort(text string) (string, error) {
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
