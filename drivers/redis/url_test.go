package redis

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestParse(t *testing.T) {
	t.Setenv(envPassword, "")
	for rawURL, want := range map[string]string{
		"redis://h":                        "h:6379 0 '' '' false",
		"redis://h:1/2":                    "h:1 2 '' '' false",
		"rediss://h":                       "h:6379 0 '' '' true",
		"REDISS://u:p%40%2F@h/0?prefix=a:": "h:6379 0 'u' 'p@/' true",
		"redis://:p@[::1]:7":               "[::1]:7 0 '' 'p' false",
		"redis://:p@[::1]/1?commandTimeout=1s&history=3&replicas=0": "[::1]:6379 1 '' 'p' false",
	} {
		o, sentinel, _, err := parse(rawURL)
		got := strings.Join([]string{o.Addr, string(rune('0' + o.DB)), "'" + o.Username + "'", "'" + o.Password + "'",
			map[bool]string{true: "true", false: "false"}[o.TLSConfig != nil]}, " ")
		if err != nil || got != want || sentinel != nil {
			t.Errorf("%s: %s, %v, want %s", rawURL, got, err, want)
		}
	}
	t.Setenv(envPassword, "of the environment")
	if o, _, _, err := parse("redis://user@h"); err != nil || o.Username != "user" || o.Password != "of the environment" {
		t.Errorf("%q, %q, %v", o.Username, o.Password, err)
	}
	if o, _, _, err := parse("redis://user:own@h"); err != nil || o.Password != "own" {
		t.Errorf("%q, %v", o.Password, err)
	}
	_, s, _, err := parse("redis://u:p@a,b:1,[::2]/3?master=main&sentinelUser=su&sentinelPassword=sp")
	if err != nil || s == nil || strings.Join(s.SentinelAddrs, " ") != "a:26379 b:1 [::2]:26379" || s.MasterName != "main" || s.DB != 3 ||
		s.Username != "u" || s.Password != "p" || s.SentinelUsername != "su" || s.SentinelPassword != "sp" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Each wrong URL has an error that says what is allowed, and shows nothing of a password.
func TestInvalidURLs(t *testing.T) {
	t.Setenv(envPassword, "")
	missing := filepath.ToSlash(filepath.Join(t.TempDir(), "missing.pem"))
	for rawURL, want := range map[string]string{
		"redis:h":                                  "// is missing",
		"redis:///0":                               "host is missing",
		"redis://":                                 "host is missing",
		"redis://h:x":                              "a port is not a number",
		"redis://h:0":                              "a port is not a number",
		"redis://h:65536":                          "a port is not a number",
		"redis://u:secret@p@h":                     "percent-encoded",
		"redis://u:secret/x@h":                     "percent-encoded",
		"redis://u:secret?x@h":                     "percent-encoded",
		"redis://u:secret#@h":                      "percent-encoded",
		"redis://u:secret%zz@h":                    "percent-encoded",
		"redis://u:secret":                         "a port is not a number",
		"redis://user@h":                           "REDISCLI_AUTH",
		"redis://h/-1":                             "the database is not a number",
		"redis://h/a":                              "the database is not a number",
		"redis://h/01":                             "the database is not a number",
		"redis://h/1/2":                            "the database is not a number",
		"redis://a,b":                              "parameter master",
		"redis://h?sentinelPassword=secret":        "with the parameter master",
		"redis://h?secret=1":                       "one of caFile",
		"redis://h?prefix":                         "with a value",
		"redis://h?prefix=a&prefix=b":              "given once",
		"redis://h?prefix=a*":                      "letters, digits",
		"redis://h?history=33":                     "history",
		"redis://h?replicas=-1":                    "from 0 to 100",
		"redis://h?replicas=x":                     "from 0 to 100",
		"redis://h?commandTimeout=x":               "a duration",
		"redis://h?commandTimeout=1ms":             "from 100ms to 1m",
		"redis://h?caFile=x":                       "with the scheme rediss",
		"rediss://h?caFile=" + missing:             "PEM certificates",
		"rediss://h?certFile=" + missing:           "given together",
		"rediss://h?certFile=a&keyFile=" + missing: "readable files",
		" redis://h":                               "",
	} {
		_, err := Open(t.Context(), rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") &&
			!strings.Contains(rawURL, "?secret=") {
			t.Errorf("%s: %v, want an error with %q", rawURL, err, want)
		}
	}
}
