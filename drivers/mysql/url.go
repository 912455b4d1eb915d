package mysql

import (
	"context"
	"crypto/tls"
	"net/url"
	"os"
	"slices"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// URL parameters of this driver.
const (
	paramCommandTimeout = "commandTimeout"
	paramTable          = "table"
	paramTLS            = "tls"
)

var form = serverurl.Form{
	Scheme: "mysql", DefaultPort: "3306",
	Text: "of the form mysql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS",
	Params: []string{serverurl.ParamCAFile, serverurl.ParamCertFile, paramCommandTimeout, driver.ParamHistory, serverurl.ParamKeyFile,
		paramTable, paramTLS},
}

// Values of the parameter tls, which are those of the client library's data sources, too.
const (
	tlsVerify    = "true"
	tlsUnchecked = "skip-verify"
	tlsPreferred = "preferred"
	tlsOff       = "false"
)

// envPassword names the variable with the password, which the client programs of the servers read as well.
const envPassword = "MYSQL_PWD" //nolint:gosec // a name

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

// parse reads a URL. Errors show nothing of the user and the password.
func parse(rawURL string) (hosts []*gomysql.Config, own []Option, err error) {
	u, err := form.Parse(rawURL)
	if err != nil {
		return nil, nil, err
	}
	c := gomysql.NewConfig()
	c.Net, c.DBName, c.Logger = "tcp", u.Path, &gomysql.NopLogger{}
	c.ConnectionAttributes = "program_name:holdfast"
	if c.User, c.Passwd = u.User, u.Password; c.Passwd == "" {
		c.Passwd = os.Getenv(envPassword)
	}
	if !validDatabase.MatchString(u.Path) {
		return nil, nil, form.Malformed("the database is missing, or has other characters than letters, digits and _$- " +
			"(is everything percent-encoded?)")
	}
	if err = setTLS(c, u.Params); err != nil {
		return nil, nil, err
	}
	if own, err = options(u.Path, u.Params); err != nil {
		return nil, nil, err
	}
	addresses, err := form.Addresses(u.Hosts)
	if err != nil {
		return nil, nil, err
	}
	for _, address := range addresses {
		one := c.Clone()
		one.Addr = address
		hosts = append(hosts, one)
	}
	return hosts, own, nil
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
	files := serverurl.FileParam(values) != ""
	mode := values.Get(paramTLS)
	switch {
	case mode == "" && files:
		mode = tlsVerify
	case mode == "":
		mode = tlsPreferred
	case !slices.Contains([]string{tlsVerify, tlsUnchecked, tlsPreferred, tlsOff}, mode):
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(mode), "true, skip-verify, preferred or false")
	case files && mode != tlsVerify:
		return driver.Invalid("URL parameter "+paramTLS, driver.Quote(mode), "true with "+serverurl.FileParam(values))
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
	return serverurl.SetFiles(c.TLS, values)
}
