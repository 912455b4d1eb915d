package postgres

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCommandTimeout = "commandTimeout"
	paramListen         = "listen"
	paramSchema         = "schema"
	paramTable          = "table"
)

var params = []string{paramCommandTimeout, driver.ParamHistory, paramListen, paramSchema, paramTable}

// theirParams are the parameters of libpq and pgx, and those of the server that a connection may begin with. Others of the
// server are set by options=-c NAME=VALUE. pgx would pass any text on, and poolers refuse what they do not know.
var theirParams = strings.Fields(`
	application_name channel_binding client_encoding connect_timeout database dbname default_query_exec_mode
	description_cache_capacity host krbspn krbsrvname max_protocol_version min_protocol_version options passfile password
	pool_health_check_period pool_max_conn_idle_time pool_max_conn_lifetime pool_max_conn_lifetime_jitter pool_max_conns
	pool_min_conns pool_min_idle_conns port require_auth search_path service servicefile sslcert sslcertmode sslkey
	sslmode sslnegotiation sslpassword sslrootcert sslsni statement_cache_capacity target_session_attrs timezone user`)

// Open connects to the servers of a URL with the scheme postgres or postgresql, as libpq and pgx read it. In addition to
// their parameters it accepts table and schema (see [WithTable]), commandTimeout (a Go duration, see
// [WithCommandTimeout]), history (a number, see [WithHistory]), and listen: another URL, percent-encoded, for the
// connection that is notified of releases, if a pooler stands between that delivers no notifications. They take precedence
// over opts. Of several hosts, Open uses the primary, unless target_session_attrs says otherwise (any, which is the default of
// libpq, does not), and gives each 3 s to connect, unless connect_timeout says otherwise.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	l, err := connect(rawURL, opts)
	if err != nil {
		return nil, err
	}
	return l.begin(ctx)
}

// connect makes a Locker that has sent nothing.
func connect(rawURL string, opts []Option) (*Locker, error) {
	rest, own, err := takeParams(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	poolConfig, err := pgxpool.ParseConfig(rest)
	if err != nil {
		return nil, connectError(malformed(rest))
	}
	return newLocker(poolConfig, append(append(slices.Clone(opts), own...), func(c *config) { c.byURL = true }))
}

// takeParams takes this driver's parameters from a URL. rest is for pgx.
func takeParams(rawURL string) (rest string, own []Option, err error) {
	base, query, _ := strings.Cut(rawURL, "?")
	for _, text := range []string{rawURL, base} { // without a query pgx would leave out what is at the end of base
		if err := driver.ValidateURLEnds(text); err != nil {
			return "", nil, err
		}
	}
	scheme, address, _ := strings.Cut(base, "://")
	scheme = strings.ToLower(scheme)
	if scheme != "postgres" && scheme != "postgresql" {
		return "", nil, malformedURL("// is missing")
	}
	authority, path, _ := strings.Cut(address, "/")
	// Otherwise pgx would take a part of the password for a host, and look it up, or for a parameter, or for the database.
	if strings.Count(authority, "@") > 1 || strings.Contains(path+query, "@") {
		return "", nil, malformedURL("user, password, database and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?)")
	}
	if err := checkPorts(authority); err != nil {
		return "", nil, err
	}
	if strings.Contains(rawURL, "#") { // pgx would leave out what follows it
		return "", nil, malformedURL("# must be percent-encoded (%23)")
	}
	taken, others, err := driverutil.TakeParams(query, params)
	if err != nil {
		return "", nil, err
	}
	for _, p := range taken {
		option, err := parameter(p)
		if err != nil {
			return "", nil, err
		}
		own = append(own, option)
	}
	if rest = scheme + "://" + address; others == "" {
		return rest, own, nil
	}
	for pair := range strings.SplitSeq(others, "&") {
		if key, _, _ := strings.Cut(pair, "="); !slices.Contains(theirParams, key) {
			return "", nil, driver.Invalid("URL parameter", driver.QuoteName(key),
				"one of "+strings.Join(params, ", ")+", or a connection parameter of PostgreSQL; "+
					"others of the server are set by options=-c%20NAME=VALUE")
		}
	}
	return rest + "?" + others, own, nil
}

// checkPorts refuses user:1,password/app, which newer versions of pgx take for two hosts: they would look the password up.
func checkPorts(authority string) error {
	hosts := strings.Split(authority[strings.LastIndexByte(authority, '@')+1:], ",")
	ports := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		return !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":")
	})
	if len(ports) > 0 && len(ports) < len(hosts) {
		return malformedURL("of several hosts all must have a port, or none (is an @ missing after user and password? " +
			"is everything percent-encoded?)")
	}
	return nil
}

// parameter reads one parameter of this driver.
func parameter(p driverutil.Param) (Option, error) {
	field := "URL parameter " + p.Name
	switch p.Name {
	case paramTable:
		return func(c *config) { c.table.name = p.Value }, checkIdentifier(field, p.Value)
	case paramSchema:
		return func(c *config) { c.table.schema = p.Value }, checkIdentifier(field, p.Value)
	case driver.ParamHistory:
		n, err := p.History()
		return WithHistory(n), err
	case paramListen:
		listen, err := listenConfig(p.Value)
		return func(c *config) { c.listen = listen }, err
	default:
		d, err := p.Duration()
		return WithCommandTimeout(d), err
	}
}

// listenConfig reads the URL for the connection that listens.
func listenConfig(rawURL string) (*pgx.ConnConfig, error) {
	rest, own, err := takeParams(rawURL)
	if err == nil && len(own) == 0 {
		if listen, err := pgx.ParseConfig(rest); err == nil {
			return listen, nil
		}
	}
	return nil, driver.Invalid("URL parameter "+paramListen, "without a valid value",
		"a percent-encoded URL such as postgres%3A%2F%2FUSER%40HOST%2FDATABASE, without parameters of this driver")
}
func malformedURL(reason string) error {
	return driver.Invalid("URL", "with scheme postgres", "of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS: "+reason)
}

// malformed says what is wrong with a URL that pgx cannot parse, and shows nothing of it: pgx's own error can contain it.
func malformed(rawURL string) error {
	base, query, _ := strings.Cut(rawURL, "?")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" && !strings.Contains(query, "host=") {
		return malformedURL("host, port, user or password are malformed (is everything percent-encoded?)")
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if _, port, found := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":"); found {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return malformedURL("a port is not a number from 1 to 65535 (is an @ missing after user and password?)")
			}
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(pair, "=")
		if key == "password" || key == "sslpassword" || pair == "" {
			continue
		}
		if _, err := pgxpool.ParseConfig("postgres://localhost/?" + pair); err != nil {
			return malformedURL("the parameter " + driver.QuoteName(key) + " has a value that is not valid, or names a file that cannot be read")
		}
	}
	return malformedURL("user, password or their parameters are malformed (is everything percent-encoded?)")
}

// withoutString leaves out what a driver of database/sql says about a malformed connection string: that can have the password.
func withoutString(err error) error {
	var ofPGX *pgconn.ParseConfigError
	var parsing *url.Error
	if errors.As(err, &ofPGX) || errors.As(err, &parsing) && parsing.Op == "parse" ||
		err != nil && strings.Contains(err.Error(), "in connection ") { // of lib/pq
		return driver.Invalid("connection string of the database", "(not shown)",
			"one of its driver's: is everything percent-encoded or quoted, and can its files be read?")
	}
	return err
}
