package serverurl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

var form = Form{Scheme: "db", TLSScheme: "dbs", Text: "of the form db://HOST", DefaultPort: "1234",
	Params: []string{"a", ParamCAFile, ParamCertFile, ParamKeyFile}}

func TestParse(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"db://h":                         "false '' '' h '' '' false",
		"db://":                          "false '' ''  '' '' false",
		"DBS://u:p%40%2F@h:1,[::1]/b/c?": "true 'u' 'p@/' h:1,[::1] 'b/c' '' true",
		"db://:p@h/?a=%26":               "true '' 'p' h '' '&' false",
		"db://u:@h":                      "true 'u' '' h '' '' false",
		"db://@h/%41":                    "true '' '' h '%41' '' false",
	} {
		u, err := form.Parse(rawURL)
		got := fmt.Sprintf("%v '%s' '%s' %s '%s' '%s' %v", u.Named, u.User, u.Password, u.Hosts, u.Path, u.Params.Get("a"), u.TLS)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", rawURL, got, err, want)
		}
	}
}

// Each malformed URL has an error that says what is allowed, and shows nothing of a password.
func TestMalformed(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"db:h":                "of the form db://HOST: // is missing",
		"http://h":            "// is missing",
		"://h":                "// is missing",
		"dbſ://h":             "// is missing",
		"db://u:secret@p@h":   "percent-encoded",
		"db://u:secret/x@h":   "percent-encoded",
		"db://u:secret?x@h":   "percent-encoded",
		"db://u:secret#@h":    "percent-encoded",
		"db://u:secret%zz@h":  "percent-encoded",
		"db://secret%zz:p@h":  "percent-encoded",
		"db://h?a=1;b=secret": "encoded",
		"db://h?b=1":          "one of a, caFile, certFile, keyFile",
		"db://h?a":            "with a value",
		"db://h?a=1&a=2":      "given once",
		" db://h":             "white space",
		"db://h/x\n":          "white space",
	} {
		_, err := form.Parse(rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an error with %q", rawURL, err, want)
		}
	}
	without := form
	without.TLSScheme = ""
	if _, err := without.Parse("://h"); err == nil {
		t.Error("no scheme passes for that with TLS")
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for hosts, want := range map[string]string{
		"h": "h:1234", "h:1,[::1],i_-.x,[::2]:65535": "h:1 [::1]:1234 i_-.x:1234 [::2]:65535", "bücher": "bücher:1234",
	} {
		if got, err := form.Addresses(hosts); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %s", hosts, got, err, want)
		}
	}
	const port, host = "a port is not a number from 1 to 65535", "host or port are malformed, or the host is missing"
	for hosts, want := range map[string]string{
		"h:x": port, "h:0": port, "h:65536": port, "u:secret": port, "https://h": port, "": host, "a,,b": host, "a,": host, ":1": host,
		"h<x": host, "h{x": host, "h\x00x": host, "h\tx:1": host, "h%41": host, "::1": host, "[::1": host, `h\x`: host,
	} {
		_, err := form.Addresses(hosts)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an error with %q", hosts, err, want)
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string][2]bool{
		"db://h": {false, false}, "db://u@h": {true, false}, "db://u:p@h": {true, true}, "db://:p@h": {true, true}, "db://u:@h": {true, false},
		"db://h?a=b:c@d": {false, false}, "db://h:1": {false, false}, "": {false, false},
	} {
		if named, password := Login(rawURL); named != want[0] || password != want[1] {
			t.Errorf("%s: %v, %v", rawURL, named, password)
		}
	}
}
