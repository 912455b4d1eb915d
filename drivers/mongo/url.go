package mongo

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramCollection     = "collection"
	paramCommandTimeout = "commandTimeout"
	paramRetention      = "retention"
	paramWake           = "wake"
)

var params = []string{paramCollection, paramCommandTimeout, driver.ParamHistory, paramRetention, paramWake}

// Open connects to a MongoDB connection string, whose path names the database. In addition to
// MongoDB's own options it accepts the parameters collection (default "holdfast_locks"),
// commandTimeout and retention (Go durations, see [WithCommandTimeout] and [WithRetention]), wake
// (hints or poll, see [WithWake]) and history (a number, see [WithHistory]). They take
// precedence over opts. Closing the Locker disconnects its client. The lookup of a mongodb+srv name
// is limited by the system's resolver, the rest by ctx. Each command has the time limit of
// [WithCommandTimeout], too. So Open fails after that time, 10 s by default, if no server answers,
// although ctx has more time: a program that starts before its database sets a longer one, or calls Open again.
//
// Connections that were idle for 30 s are closed, unless the URL has maxIdleTimeMS.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	l, err := connect(rawURL, opts)
	if err != nil {
		return nil, err
	}
	return l.beginOrDisconnect(ctx)
}

// beginOrDisconnect makes a Locker with a client of its own ready for use.
func (l *Locker) beginOrDisconnect(ctx context.Context) (*Locker, error) {
	if err := l.begin(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.timeout)
		defer cancel()
		return nil, errors.Join(err, l.disconnect(ctx))
	}
	return l, nil
}

// connect makes a Locker with a client of its own. It sends nothing.
func connect(rawURL string, opts []Option) (*Locker, error) {
	target, err := parseURL(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	config, err := newConfig(append(slices.Clone(opts), target.options...))
	if err != nil {
		return nil, connectError(err)
	}
	if config.monitor != nil {
		target.client.SetMonitor(config.monitor)
	}
	config.poolSize = makeRoom(target.client)
	closeIdle(target.client)
	sockets := watchSockets(target.client)
	client, err := mongo.Connect(target.client)
	if err != nil {
		return nil, connectError(err)
	}
	l := newLocker(client.Database(target.database).Collection(target.collection), config)
	l.dial, l.sockets, l.disconnect = target.client, sockets, client.Disconnect
	return l, nil
}

// target is the content of a URL.
type target struct {
	client               *options.ClientOptions
	database, collection string
	options              []Option
}

// parseURL reads this driver's parameters; the Go driver parses the rest.
func parseURL(rawURL string) (*target, error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return nil, err
	}
	t := &target{collection: DefaultCollection}
	base, query, _ := strings.Cut(rawURL, "?")
	if !strings.Contains(rawURL, "@") && !validPorts(base) { // a later error would quote the options, which may contain a part of a password
		return nil, malformedURL(badPortReason)
	}
	// Otherwise the Go driver would take a part of the password for a host, and look it up, or for an option.
	if strings.Count(base, "@") > 1 || strings.Contains(query, "@") {
		return nil, malformedURL("user, password and options must be percent-encoded (%40 for @, %2F for /, %3F for ?)")
	}
	rest, err := t.parseParams(query)
	if err != nil {
		return nil, err
	}
	if err := checkUnknown(rest); err != nil {
		return nil, err
	}
	if t.database = databaseOf(base); t.database == "" {
		return nil, driver.Invalid("URL", "without a database", "of the form mongodb://HOSTS/DATABASE?OPTIONS")
	}
	if err := checkNames("URL database", "URL parameter "+paramCollection, t.database, t.collection); err != nil {
		return nil, err
	}
	uri := base + "?" + rest
	t.client = options.Client().ApplyURI(uri)
	if err := t.client.Validate(); err != nil {
		return nil, malformedURL(parseProblem(uri))
	}
	for _, host := range t.client.Hosts {
		if other := unsupportedHost(host); other != "" {
			return nil, driver.Invalid("server", other, serverRule)
		}
	}
	if t.client.AppName == nil {
		t.client.SetAppName("holdfast")
	}
	return t, nil
}

// parseParams reads this driver's parameters and returns the others unchanged.
func (t *target) parseParams(query string) (rest string, err error) {
	taken, rest, err := driverutil.TakeParams(query, params)
	if err != nil {
		return "", err
	}
	for _, p := range taken {
		switch p.Name {
		case paramCollection:
			t.collection = p.Value
		case paramWake:
			t.options = append(t.options, WithWake(Wake(p.Value)))
		case driver.ParamHistory:
			n, err := p.History()
			if err != nil {
				return "", err
			}
			t.options = append(t.options, WithHistory(n))
		default:
			d, err := p.Duration()
			if err != nil {
				return "", err
			}
			if p.Name == paramRetention {
				t.options = append(t.options, WithRetention(d))
			} else {
				t.options = append(t.options, WithCommandTimeout(d))
			}
		}
	}
	return rest, nil
}

// notInGo are connection options of MongoDB that its driver for Go does not have, with what replaces them.
var notInGo = map[string]string{
	"wtimeoutMS":                  "commandTimeout limits each command",
	"waitQueueTimeoutMS":          "commandTimeout limits each command, with the wait for a connection",
	"tlsAllowInvalidCertificates": "use tlsInsecure",
	"tlsAllowInvalidHostnames":    "use tlsInsecure",
}

// checkUnknown reports options that the Go driver would silently ignore. Only its own parser
// knows them. That package is public but may change, so nothing else of it is used.
func checkUnknown(query string) error {
	parsed, err := connstring.Parse("mongodb://localhost/?" + query)
	if err == nil { // otherwise parsing the whole string reports it
		for name := range parsed.UnknownOptions {
			for option, instead := range notInGo {
				if strings.EqualFold(name, option) {
					return driver.Invalid("URL parameter", driver.QuoteName(option), "left out: MongoDB's driver for Go does not have this option; "+
						instead)
				}
			}
			return driver.Invalid("URL parameter", driver.QuoteName(name), "one of "+strings.Join(params, ", ")+
				", or a connection option that MongoDB's driver for Go has")
		}
	}
	return nil
}

// databaseOf returns the database in a connection string without options.
func databaseOf(base string) string {
	_, rest, _ := strings.Cut(base, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	_, name, _ := strings.Cut(rest, "/")
	name, err := url.PathUnescape(name)
	if err != nil || strings.ContainsRune(name, 0) {
		return ""
	}
	return name
}

// badPortReason is the reason if a password may be in the place of a port. It never shows the
// text.
const badPortReason = "a port is not a number from 1 to 65535 (is an @ missing after user and password?)"

func malformedURL(reason string) error {
	return driver.Invalid("URL", "with scheme mongodb", "a MongoDB connection string: "+reason)
}

// validPorts checks the hosts of a connection string without credentials and options.
func validPorts(bare string) bool {
	_, hosts, _ := strings.Cut(bare, "://")
	hosts, _, _ = strings.Cut(hosts, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if end := strings.Index(host, "]"); strings.HasPrefix(host, "[") && end > 0 { // IPv6
			host = host[end+1:]
		}
		_, port, found := strings.Cut(host, ":")
		if n, err := strconv.ParseUint(port, 10, 16); found && (err != nil || n == 0) {
			return false
		}
	}
	return true
}

// parseProblem says what is wrong with a connection string without showing any part of its
// credentials: it parses the string without them.
func parseProblem(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	at := strings.LastIndex(rest, "@")
	rest = rest[at+1:]
	base, query, _ := strings.Cut(rest, "?")
	hosts := scheme + "://" + base
	if !validPorts(hosts) {
		return badPortReason
	}
	if at < 0 && scheme == "mongodb" && options.Client().ApplyURI(hosts).Validate() != nil {
		return "the hosts are malformed (is an @ missing after user and password?)"
	}
	var harmless []string
	for pair := range strings.SplitSeq(query, "&") {
		key := strings.ToLower(pair)
		if !strings.Contains(key, "password") && !strings.HasPrefix(key, "auth") {
			harmless = append(harmless, pair)
		}
	}
	if err := options.Client().ApplyURI(hosts + "?" + strings.Join(harmless, "&")).Validate(); err != nil {
		return err.Error()
	}
	return "user, password or their options are malformed (is everything percent-encoded?)"
}

// DefaultCollection is the collection of a URL that names none.
const DefaultCollection = "holdfast_locks"
