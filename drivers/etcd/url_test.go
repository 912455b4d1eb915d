package etcd

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestParse(t *testing.T) {
	t.Setenv(envPassword, "")
	for rawURL, want := range map[string]string{
		"etcd://h":                                    "http://h:2379 '' '' holdfast",
		"etcd://h:1,[::1],i/a/b":                      "http://h:1 http://[::1]:2379 http://i:2379 '' '' a/b",
		"ETCDS://u:p%40%2F@h/A.b_c-1":                 "https://h:2379 'u' 'p@/' A.b_c-1",
		"etcd://h/?history=3&requestTimeout=1s":       "http://h:2379 '' '' holdfast",
		"etcds://u:p@[::1]:7/x?requestTimeout=1m0.0s": "https://[::1]:7 'u' 'p' x",
	} {
		p, own, err := parse(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		c, err := newSettings(own)
		var got []string
		for _, m := range p.members {
			got = append(got, m.url)
		}
		text := strings.Join(got, " ") + " '" + p.username + "' '" + p.password + "' " + c.prefix
		if err != nil || text != want || (p.tls != nil) != strings.Contains(want, "https") {
			t.Errorf("%s: %s, %v, want %s", rawURL, text, err, want)
		}
	}
	t.Setenv(envPassword, "of the environment")
	if p, _, err := parse("etcd://user@h"); err != nil || p.username != "user" || p.password != "of the environment" {
		t.Errorf("%q, %q, %v", p.username, p.password, err)
	}
	if p, _, err := parse("etcd://user:own@h"); err != nil || p.password != "own" {
		t.Errorf("%q, %v", p.password, err)
	}
	if p, _, err := parse("etcd://h"); err != nil || p.username+p.password != "" {
		t.Errorf("%q, %v", p.password, err)
	}
	for rawURL, want := range map[string]bool{"etcd://h": false, "etcd://u@h": true, "etcd://u:p@h": false, "etcd://h/x?history=1": false} {
		if readsPassword(rawURL) != want {
			t.Errorf("%s: reads the password of the environment: %v", rawURL, !want)
		}
	}
}

// Each wrong URL has an error that says what is allowed, and shows nothing of a password.
func TestInvalidURLs(t *testing.T) {
	t.Setenv(envPassword, "")
	missing := filepath.ToSlash(filepath.Join(t.TempDir(), "missing.pem"))
	for rawURL, want := range map[string]string{
		"etcd:///x":                                "host is missing",
		"etcd://h:x":                               "a port is not a number",
		"etcd://h/a%2Fb":                           "percent-encoded",
		"etcd://h/a/":                              "in parts that / separates",
		"etcd://h//a":                              "in parts that / separates",
		"etcd://h/a*":                              "letters, digits",
		"etcd://h/" + strings.Repeat("a", 201):     "1 to 200",
		"etcd://u:secret/x@h":                      "percent-encoded",
		"etcd://u:secret":                          "a port is not a number",
		"etcd://user@h":                            envPassword,
		"etcd://:secret@h":                         "must be a user",
		"etcd://h?secret=1":                        "one of caFile",
		"etcd://h?history":                         "with a value",
		"etcd://h?history=33":                      "history",
		"etcd://h?requestTimeout=x":                "a duration",
		"etcd://h?requestTimeout=1ms":              "from 100ms to 1m",
		"etcd://h?requestTimeout=61s":              "from 100ms to 1m",
		"etcd://h?caFile=x":                        "with the scheme etcds",
		"etcds://h?caFile=" + missing:              "PEM certificates",
		" etcd://h":                                "white space",
		"etcd://https://h":                         "a port is not a number",
		"etcd://h?caFile=" + missing + "&history=": "with a value",
	} {
		_, err := Open(t.Context(), rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") &&
			!strings.Contains(rawURL, "?secret=") {
			t.Errorf("%s: %v, want an error with %q", rawURL, err, want)
		}
	}
}

// The fields of the configuration of etcd's own client are understood, and errors show none of them.
func TestConfig(t *testing.T) {
	t.Parallel()
	own := &tls.Config{ServerName: "etcd", MinVersion: tls.VersionTLS10} //nolint:gosec // what a program may have
	for want, c := range map[string]Config{
		"http://a:2379 http://b:1":   {Endpoints: []string{"a", "http://b:1/"}},
		"https://a:2379 https://b:1": {Endpoints: []string{"https://a", "https://b:1"}},
		"https://c:2379":             {Endpoints: []string{"c:2379"}, TLS: own, Username: "u", Password: "p"},
	} {
		got, err := targetOf(c)
		var urls []string
		for _, m := range got.members {
			urls = append(urls, m.url)
		}
		if err != nil || strings.Join(urls, " ") != want || (got.tls != nil) != strings.HasPrefix(want, "https") || got.username != c.Username ||
			got.password != c.Password {
			t.Errorf("%+v, %v, want %s", got, err, want)
		}
		if got.tls != nil && (got.tls.MinVersion != tls.VersionTLS12 || got.tls == own) || own.MinVersion != tls.VersionTLS10 {
			t.Errorf("the TLS of the program is used as it is: %v", got.tls)
		}
	}
	for _, c := range []Config{
		{}, {Endpoints: []string{""}}, {Endpoints: []string{"unix:///secret"}}, {Endpoints: []string{"https://a", "http://secret"}},
		{Endpoints: []string{"http://secret"}, TLS: own}, {Endpoints: []string{"http://u:secret@a"}}, {Endpoints: []string{"a/secret"}},
		{Endpoints: []string{"a"}, Username: "u"}, {Endpoints: []string{"a"}, Password: "secret"},
	} {
		_, err := New(t.Context(), c)
		if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", c.Endpoints, err)
		}
	}
	for _, o := range []Option{nil, WithPrefix(""), WithPrefix("a*"), WithPrefix("/a"), WithRequestTimeout(time1ms), WithHistory(33)} {
		if _, err := New(t.Context(), Config{Endpoints: []string{"a"}}, o); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	}
}

const time1ms = 1_000_000
