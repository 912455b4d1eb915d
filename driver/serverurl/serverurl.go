// Package serverurl reads the URLs of drivers that connect to servers by a user, a password and addresses. Its errors show nothing of
// the user and the password.
package serverurl

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Form is what the URLs of a driver look like: SCHEME://USER:PASSWORD@HOST1:PORT,HOST2:PORT/PATH?PARAMETERS.
type Form struct {
	// Scheme, and TLSScheme if there is another one for TLS.
	Scheme, TLSScheme string
	// Text describes the form in errors, such as "of the form redis://HOST:PORT".
	Text   string
	Params []string
	// DefaultPort is that of addresses without one.
	DefaultPort string
}

// URL is what a URL says.
type URL struct {
	Named          bool // there is an @: User and Password are what stands before it, and may be empty
	Colon          bool // there is a colon before the @
	User, Password string
	Hosts          string // as they are; see [Form.Addresses]
	Path           string // as it is, without the first "/"
	Params         url.Values
	TLS            bool // the scheme is TLSScheme
}

// Malformed is the error for a URL that has another form. The reason shows nothing of it.
func (f Form) Malformed(reason string) error {
	return driver.Invalid("URL", "with scheme "+f.Scheme, f.Text+": "+reason)
}

// Parse reads a URL. Each parameter has one value, which is not empty.
func (f Form) Parse(rawURL string) (u URL, err error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return u, err
	}
	base, query, _ := strings.Cut(rawURL, "?")
	scheme, address, found := strings.Cut(base, "://")
	scheme = strings.ToLower(scheme)
	u.TLS = f.TLSScheme != "" && scheme == f.TLSScheme
	if !found || !u.TLS && scheme != f.Scheme {
		return u, f.Malformed("// is missing")
	}
	u.Hosts, u.Path, _ = strings.Cut(address, "/")
	// Otherwise a part of the password would pass for a host, the path or a parameter.
	if strings.Count(u.Hosts, "@") > 1 || strings.Contains(u.Path+query, "@") || strings.Contains(rawURL, "#") {
		return u, f.Malformed("user, password and parameters must be percent-encoded (%40 for @, %2F for /, %3F for ?, %23 for #)")
	}
	if _, u.Params, err = driverutil.ParseURL(f.Scheme+"://x?"+query, f.Text, f.Params...); err != nil {
		return u, err
	}
	for name, all := range u.Params {
		if len(all) != 1 || all[0] == "" {
			return u, driver.Invalid("URL parameter "+name, "without a value, or twice", "given once, with a value")
		}
	}
	login, hosts, named := strings.Cut(u.Hosts, "@")
	if !named {
		return u, nil
	}
	user, password, colon := strings.Cut(login, ":")
	u.Named, u.Colon, u.Hosts = true, colon, hosts
	var err1, err2 error
	if u.User, err1 = url.PathUnescape(user); err1 == nil {
		u.Password, err2 = url.PathUnescape(password)
	}
	if err1 != nil || err2 != nil {
		return u, f.Malformed("user and password must be percent-encoded")
	}
	return u, nil
}

// Login reports whether a URL, which may be malformed, has an @, and a password before it.
func Login(rawURL string) (named, password bool) {
	base, _, _ := strings.Cut(rawURL, "?")
	_, base, _ = strings.Cut(base, "//")
	login, _, named := strings.Cut(base, "@")
	_, text, _ := strings.Cut(login, ":")
	return named, named && text != ""
}

// Addresses reads hosts, which commas separate.
func (f Form) Addresses(hosts string) (all []string, err error) {
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := f.Address(host)
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// Address reads HOST, HOST:PORT, [HOST] or [HOST]:PORT, and returns HOST:PORT.
func (f Form) Address(text string) (string, error) {
	if !strings.Contains(text[strings.LastIndexByte(text, ']')+1:], ":") {
		text += ":" + f.DefaultPort
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsFunc(host, isNoHostRune) {
		return "", f.Malformed("host or port are malformed, or the host is missing (is everything percent-encoded?)")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", f.Malformed("a port is not a number from 1 to 65535 (is an @ missing after user and password?)")
	}
	return net.JoinHostPort(host, port), nil
}

func isNoHostRune(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_:", r) // the colons are those of IPv6
}
