package mysql

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestParse(t *testing.T) {
	t.Setenv(envPassword, "")
	for rawURL, want := range map[string]string{
		"mysql://h/d":                            "h:3306 d '' '' preferred holdfast_locks",
		"MYSQL://u:p%40%2F@h:1/d-$_1?tls=true":   "h:1 d-$_1 'u' 'p@/' true holdfast_locks",
		"mysql://u@[::1]:7,b/d?tls=false":        "[::1]:7 b:3306 d 'u' '' false holdfast_locks",
		"mysql://u:@[::1]/d?table=t1":            "[::1]:3306 d 'u' '' preferred t1",
		"mysql://u:p@h/d?tls=skip-verify":        "h:3306 d 'u' 'p' skip-verify holdfast_locks",
		"mysql://h/d?commandTimeout=1s&history=": "",
	} {
		hosts, own, err := parse(rawURL)
		if want == "" {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", rawURL, err)
			}
			continue
		}
		c, failed := newConfig(own)
		if err = errors.Join(err, failed); err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		var addresses []string
		for _, h := range hosts {
			addresses = append(addresses, h.Addr)
		}
		first := hosts[0]
		mode := "false"
		switch {
		case first.AllowFallbackToPlaintext:
			mode = "preferred"
		case first.TLS != nil && first.TLS.InsecureSkipVerify:
			mode = "skip-verify"
		case first.TLS != nil:
			mode = "true"
		}
		got := fmt.Sprintf("%s %s '%s' '%s' %s %s", strings.Join(addresses, " "), c.database, first.User, first.Passwd, mode, c.table)
		if got != want || first.DBName != c.database {
			t.Errorf("%s: %s, want %s", rawURL, got, want)
		}
	}
	t.Setenv(envPassword, "of the environment")
	if h, _, err := parse("mysql://user@h/d"); err != nil || h[0].User != "user" || h[0].Passwd != "of the environment" {
		t.Errorf("%v, %v", h, err)
	}
	if h, _, err := parse("mysql://user:own@h/d"); err != nil || h[0].Passwd != "own" {
		t.Errorf("%v, %v", h, err)
	}
	for rawURL, want := range map[string]bool{"mysql://u:p@h/d": false, "mysql://u@h/d": true, "mysql://h/d?table=a:b": true} {
		if readsPassword(rawURL) != want {
			t.Errorf("%s reads the variable: %v", rawURL, !want)
		}
	}
}

// Each wrong URL has an error that says what is allowed, and shows nothing of a password.
func TestInvalidURLs(t *testing.T) {
	t.Setenv(envPassword, "")
	missing := filepath.ToSlash(filepath.Join(t.TempDir(), "missing.pem"))
	for rawURL, want := range map[string]string{
		"mysql:///d":                              "host is missing",
		"mysql://h":                               "the database is missing",
		"mysql://h/":                              "the database is missing",
		"mysql://h/a.b":                           "letters, digits",
		"mysql://h/d/t":                           "letters, digits",
		"mysql://h:x/d":                           "a port is not a number",
		"mysql://h,/d":                            "host is missing",
		"mysql://u:secret/x@h/d":                  "percent-encoded",
		"mysql://u:secret/d":                      "a port is not a number",
		"mysql://h/d?secret=1":                    "one of caFile",
		"mysql://h/d?parseTime=true":              "one of caFile",
		"mysql://h/d?table":                       "with a value",
		"mysql://h/d?table=Locks":                 "lower-case letters",
		"mysql://h/d?table=app.locks":             "lower-case letters",
		"mysql://h/d?history=33":                  "history",
		"mysql://h/d?commandTimeout=x":            "a duration",
		"mysql://h/d?commandTimeout=1ms":          "from 100ms to 1m",
		"mysql://h/d?tls=1":                       "true, skip-verify, preferred or false",
		"mysql://h/d?tls=false&caFile=" + missing: "true with caFile",
		"mysql://h/d?caFile=" + missing:           "PEM certificates",
		" mysql://h/d":                            "",
	} {
		_, err := Open(t.Context(), rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") &&
			!strings.Contains(rawURL, "?secret=") {
			t.Errorf("%s: %v, want an error with %q", rawURL, err, want)
		}
	}
}
