package azblob

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters.
const (
	paramEndpoint = "endpoint"
	paramClientID = "client_id"
)

var params = []string{paramClientID, paramEndpoint, driver.ParamHistory}

// The account of every emulator. Microsoft's documentation publishes its key.
const (
	emulator         = "emulator"
	emulatorAccount  = "devstoreaccount1"
	emulatorKey      = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	emulatorEndpoint = "http://127.0.0.1:10000/" + emulatorAccount
)

var (
	accountName   = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`) // and 3 to 63 characters long
)

// location is the content of a URL.
type location struct {
	account, container, prefix string
	endpoint                   string // as in the URL, without a slash at the end
	clientID                   string
	history                    int // if it is given
	historyGiven               bool
}

// Open returns a Locker for a URL:
//
//	azblob://ACCOUNT/CONTAINER
//	azblob://ACCOUNT/CONTAINER/PREFIX?endpoint=https://ACCOUNT.blob.core.chinacloudapi.cn
//	azblob://ACCOUNT/CONTAINER?client_id=ID&history=16
//	azblob://emulator/CONTAINER
//	azblob://emulator/CONTAINER?endpoint=http://127.0.0.1:PORT/devstoreaccount1
//
// PREFIX is that of [WithPrefix], and history that of [WithHistory]. The parameter endpoint is the account's address in another
// cloud or under another name. Credentials are not in the URL; the package's documentation
// lists their sources. Nothing is sent before the Locker's first use. Closing the Locker
// closes its connections.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	where, err := parseURL(rawURL)
	if err != nil {
		return nil, connectError(err)
	}
	if where.prefix != "" {
		opts = append(slices.Clone(opts), WithPrefix(where.prefix))
	}
	if where.historyGiven {
		opts = append(slices.Clone(opts), WithHistory(where.history))
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	transport := newTransport()
	to, kind, err := where.connect(azcore.ClientOptions{Transport: connections{transport}, PerRetryPolicies: c.policies})
	if err != nil {
		return nil, connectError(err)
	}
	c.logger.LogAttrs(ctx, slog.LevelDebug, "holdfast: credential for Azure Blob Storage", slog.String("kind", kind),
		slog.String("account", where.account), slog.String("container", where.container))
	l := newLocker(to.container, c)
	l.origin = &origin{where, kind, to}
	l.closeIdle = transport.CloseIdleConnections
	return l, nil
}

// connections make the requests of a Locker that was opened by URL, and follow no redirect: the service sends none, and lease IDs and
// credentials are for nobody else.
type connections struct{ *http.Transport }

// Do implements policy.Transporter.
func (c connections) Do(r *http.Request) (*http.Response, error) {
	client := http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil && errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		// The idle connections may be dead, too, and each would cost a request its time limit.
		c.CloseIdleConnections()
	}
	return answer, err
}

// newTransport has its own connections, enough for many locks at a time.
func newTransport() *http.Transport {
	t := &http.Transport{}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		t = standard.Clone()
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 64
	return t
}

// parseURL never puts the URL into an error, because a URL written by mistake may contain a
// secret.
func parseURL(rawURL string) (location, error) {
	invalid := func(value, rule string) (location, error) {
		return location{}, driver.Invalid("URL", value, rule)
	}
	const form = "of the form azblob://ACCOUNT/CONTAINER[/PREFIX]"
	u, query, err := driverutil.ParseURL(rawURL, form, params...)
	switch {
	case err != nil:
		return location{}, err
	case u.Opaque != "":
		return invalid("without //", form)
	case u.User != nil:
		return invalid("with user information", form+": credentials come from the environment")
	}
	history, err := driver.HistoryParam(query)
	if err != nil {
		return location{}, err
	}
	w := location{history: history, historyGiven: query.Has(driver.ParamHistory), account: u.Host, clientID: query.Get(paramClientID)}
	w.container, w.prefix, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	switch {
	case w.account != emulator && !accountName.MatchString(w.account):
		return invalid("with account "+quoteSafe(w.account), form+", ACCOUNT being 3 to 24 lower-case letters and digits, or "+emulator)
	case !containerName.MatchString(w.container) || len(w.container) < 3 || len(w.container) > 63:
		return invalid("with container "+quoteSafe(w.container), form+", CONTAINER being 3 to 63 lower-case letters, digits and single dashes")
	}
	switch { // otherwise another credential would be used without a word
	case query.Has(paramClientID) && w.clientID == "":
		return location{}, driver.Invalid("URL parameter "+paramClientID, "empty", "the client ID of a managed identity")
	case query.Has(paramClientID) && w.account == emulator:
		return location{}, driver.Invalid("URL parameter "+paramClientID, "given", "absent with account "+emulator+", which has a key")
	}
	if w.prefix = strings.TrimSuffix(w.prefix, "/"); !validPrefix(w.prefix) {
		return invalid("with prefix "+quoteSafe(w.prefix), form+", PREFIX being "+prefixRule)
	}
	w.endpoint, err = parseEndpoint(query)
	return w, err
}

// quoteSafe returns a part of a URL for an error. A wrong name may be a part of a connection
// string, a key or a SAS.
func quoteSafe(name string) string {
	if name == "" {
		return "missing"
	}
	return driver.QuoteName(name)
}

func parseEndpoint(query url.Values) (string, error) {
	if !query.Has(paramEndpoint) {
		return "", nil
	}
	endpoint, ok := cleanEndpoint(query.Get(paramEndpoint))
	if !ok {
		return "", driver.Invalid("URL parameter "+paramEndpoint, "not shown",
			"percent-encoded, such as https://ACCOUNT.blob.core.chinacloudapi.cn, without user and query (a SAS goes into "+envSAS+")")
	}
	if u, err := url.Parse(endpoint); err == nil && u.Path == "" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()) != nil) {
		return "", driver.Invalid("URL parameter "+paramEndpoint, "with host "+driver.QuoteName(u.Hostname()),
			"with the account, such as http://127.0.0.1:10000/"+emulatorAccount+
				": an address without a domain does not name it")
	}
	return endpoint, nil
}

// cleanEndpoint returns an account's address without a slash at the end. ok is false if it is no
// address, or has more than scheme, host, port and path.
func cleanEndpoint(address string) (endpoint string, ok bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", false
	}
	return strings.TrimRight(u.String(), "/"), true
}

// serviceURL is the address of the account.
func (w location) serviceURL() string {
	switch {
	case w.endpoint != "":
		return w.endpoint
	case w.account == emulator:
		return emulatorEndpoint
	default:
		return "https://" + w.account + ".blob.core.windows.net"
	}
}

func (w location) containerURL() string { return w.serviceURL() + "/" + w.container }
