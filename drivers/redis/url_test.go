package redis

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A Locker has all options of a program's own client of a cluster that a client of one server has, too: those of newer versions of
// go-redis included, such as StreamingCredentialsProvider.
func TestOptionsOfAClusterClient(t *testing.T) {
	t.Parallel()
	own := &goredis.ClusterOptions{Addrs: []string{"a:1"}, Username: "user", Password: "secret", ConnMaxLifetime: time.Hour}
	client := goredis.NewClusterClient(own)
	defer func() { _ = client.Close() }()
	target, err := targetOf(client)
	if err != nil {
		t.Fatal(err)
	}
	from, to := reflect.ValueOf(client.Options()).Elem(), reflect.ValueOf(target.options)
	for _, field := range reflect.VisibleFields(to.Type()) {
		of := from.FieldByName(field.Name)
		if is := to.FieldByName(field.Name); of.IsValid() && of.Comparable() && !of.Equal(is) {
			t.Errorf("%s is %v, want %v", field.Name, is, of)
		}
	}
}

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
		parsed, _, err := parse(rawURL)
		o := parsed.options
		got := strings.Join([]string{o.Addr, string(rune('0' + o.DB)), "'" + o.Username + "'", "'" + o.Password + "'",
			map[bool]string{true: "true", false: "false"}[o.TLSConfig != nil]}, " ")
		if err != nil || got != want || parsed.sentinels != nil || parsed.cluster != nil {
			t.Errorf("%s: %s, %v, want %s", rawURL, got, err, want)
		}
	}
	t.Setenv(envPassword, "of the environment")
	if p, _, err := parse("redis://user@h"); err != nil || p.options.Username != "user" || p.options.Password != "of the environment" {
		t.Errorf("%q, %q, %v", p.options.Username, p.options.Password, err)
	}
	if p, _, err := parse("redis://user:own@h"); err != nil || p.options.Password != "own" {
		t.Errorf("%q, %v", p.options.Password, err)
	}
	p, _, err := parse("redis://u:p@a,b:1,[::2]/3?master=main&sentinelUser=su&sentinelPassword=sp")
	if err != nil || strings.Join(p.sentinels, " ") != "a:26379 b:1 [::2]:26379" || p.master != "main" || p.options.DB != 3 ||
		p.options.Username != "u" || p.options.Password != "p" || p.sentinelUser != "su" || p.sentinelPassword != "sp" || p.cluster != nil {
		t.Errorf("%+v, %v", p, err)
	}
	p, _, err = parse("rediss://u:p@a,b:1?cluster=true")
	if err != nil || strings.Join(p.cluster, " ") != "a:6379 b:1" || p.options.Username != "u" || p.options.TLSConfig == nil {
		t.Errorf("%+v, %v", p, err)
	}
	if p, _, err = parse("redis://a?cluster=false"); err != nil || p.cluster != nil || p.options.Addr != "a:6379" {
		t.Errorf("%+v, %v", p, err)
	}
}

// Each wrong URL has an error that says what is allowed, and shows nothing of a password.
func TestInvalidURLs(t *testing.T) {
	t.Setenv(envPassword, "")
	missing := filepath.ToSlash(filepath.Join(t.TempDir(), "missing.pem"))
	for rawURL, want := range map[string]string{
		"redis:///0":                        "host is missing",
		"redis://h:x":                       "a port is not a number",
		"redis://u:secret/x@h":              "percent-encoded",
		"redis://u:secret":                  "a port is not a number",
		"redis://user@h":                    "REDISCLI_AUTH",
		"redis://h/-1":                      "the database is not a number",
		"redis://h/a":                       "the database is not a number",
		"redis://h/01":                      "the database is not a number",
		"redis://h/1/2":                     "the database is not a number",
		"redis://a,b":                       "parameter master",
		"redis://h?sentinelPassword=secret": "with the parameter master",
		"redis://h?master=m&sentinelUser=u": "with the parameter sentinelPassword",
		"redis://h?secret=1":                "one of caFile",
		"redis://h?cluster=1":               "true or false",
		"redis://h/1?cluster=true":          "database 0 alone",
		"redis://h?cluster=true&master=m":   "without the parameter master",
		"redis://h?prefix":                  "with a value",
		"redis://h?prefix=a*":               "letters, digits",
		"redis://h?history=33":              "history",
		"redis://h?replicas=-1":             "from 0 to 100",
		"redis://h?replicas=x":              "from 0 to 100",
		"redis://h?commandTimeout=x":        "a duration",
		"redis://h?commandTimeout=1ms":      "from 100ms to 1m",
		"redis://h?caFile=x":                "with the scheme rediss",
		"rediss://h?caFile=" + missing:      "PEM certificates",
		" redis://h":                        "",
	} {
		_, err := Open(t.Context(), rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") &&
			!strings.Contains(rawURL, "?secret=") {
			t.Errorf("%s: %v, want an error with %q", rawURL, err, want)
		}
	}
}
