package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestParse(t *testing.T) {
	for rawURL, want := range map[string]string{
		"nats://h/locks":                              "nats://h:4222 '' '' '' locks",
		"NATS://h:1,[::1],i/A_b-1":                    "nats://h:1 nats://[::1]:4222 nats://i:4222 '' '' '' A_b-1",
		"nats://u:p%40%2F@h/b":                        "nats://h:4222 'u' 'p@/' '' b",
		"nats://to%3Aken@h/b?history=3":               "nats://h:4222 '' '' 'to:ken' b",
		"nats://h/b?requestTimeout=1s&replicas=3":     "nats://h:4222 '' '' '' b",
		"nats://h/b?tls=false&inboxPrefix=_INBOX.app": "nats://h:4222 '' '' '' b",
		"nats://h/b?tls=true":                         "nats://h:4222 '' '' '' b TLS",
	} {
		o, bucket, own, err := parse(rawURL)
		if err == nil {
			_, err = newSettings(bucket, own)
		}
		text := fmt.Sprintf("%s '%s' '%s' '%s' %s", strings.Join(o.Servers, " "), o.User, o.Password, o.Token, bucket)
		if o.Secure {
			text += " TLS"
		}
		if err != nil || text != want {
			t.Errorf("%s: %s, %v, want %s", rawURL, text, err, want)
		}
	}
}

// Each wrong URL has an error that says what is allowed, and shows nothing of a secret.
func TestInvalidURLs(t *testing.T) {
	missing := filepath.ToSlash(filepath.Join(t.TempDir(), "missing"))
	seed := filepath.ToSlash(filepath.Join(t.TempDir(), "seed"))
	if err := os.WriteFile(seed, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for rawURL, want := range map[string]string{
		"nats:h/b":                            "// is missing",
		"nats://h":                            "the bucket is missing",
		"nats://h/":                           "the bucket is missing",
		"nats://h/a/b":                        "letters, digits",
		"nats://h/a.b":                        "letters, digits",
		"nats:///b":                           "host is missing",
		"nats://a,,b/b":                       "host is missing",
		"nats://h:x/b":                        "a port is not a number",
		"nats://h:0/b":                        "a port is not a number",
		"nats://h<x/b":                        "host or port are malformed",
		"nats://u:secret@p@h/b":               "percent-encoded",
		"nats://u:secret/x@h/b":               "percent-encoded",
		"nats://u:secret?x@h/b":               "percent-encoded",
		"nats://u:secret#@h/b":                "percent-encoded",
		"nats://u:secret%zz@h/b":              "percent-encoded",
		"nats://u:secret/b":                   "a port is not a number",
		"nats://:secret@h/b":                  "must be a user",
		"nats://user:@h/b":                    "must be a user",
		"nats://h/b?secret=1":                 "one of caFile",
		"nats://h/b?history":                  "with a value",
		"nats://h/b?history=1&history=2":      "given once",
		"nats://h/b?history=33":               "history",
		"nats://h/b?requestTimeout=x":         "a duration",
		"nats://h/b?requestTimeout=1ms":       "from 100ms to 1m",
		"nats://h/b?replicas=2":               "1, 3 or 5",
		"nats://h/b?replicas=0":               "1, 3 or 5",
		"nats://h/b?replicas=x":               "1, 3 or 5",
		"nats://h/b?inboxPrefix=a..b":         "in parts that . separates",
		"nats://h/b?inboxPrefix=a.*":          "in parts that . separates",
		"nats://h/b?tls=yes":                  "true or false",
		"nats://h/b?tls=false&caFile=" + seed: "true with files",
		"nats://h/b?caFile=" + missing:        "a readable file of PEM",
		"nats://h/b?certFile=" + missing:      "given together",
		"nats://h/b?certFile=" + missing + "&keyFile=" + missing: "readable files of a PEM",
		"nats://h/b?creds=" + missing:                            "a readable file of credentials",
		"nats://h/b?creds=secret":                                "a readable file of credentials",
		"nats://h/b?nkey=secret":                                 "a readable file with the seed",
		"nats://h/b?nkey=" + seed:                                "a readable file with the seed",
		"nats://u:secret@h/b?creds=" + seed:                      "given alone",
		"nats://h/b?creds=" + seed + "&nkey=" + seed:             "given alone",
	} {
		_, err := Open(t.Context(), rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "secret") && !strings.Contains(rawURL, "?secret") {
			t.Errorf("%s: the error shows a secret: %v", rawURL, err)
		}
	}
	if _, err := New(t.Context(), nil, "b"); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	if _, err := newSettings("b", []Option{WithLogger(nil)}); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

// nowhere is an address at which nothing listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// A token without its @ passes for a host: the error of the resolver does not show it.
func TestTokenThatPassesForAHost(t *testing.T) {
	o, bucket, own, err := parse("nats://s3cret-token/b")
	if err != nil {
		t.Fatal(err)
	}
	o.Dialer = &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server")
	}}}
	c, err := newSettings(bucket, own)
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t.Context(), o, c)
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "put an @") {
		t.Error(err)
	}
}

// Without a server.
func TestServersThatAreDown(t *testing.T) {
	if _, err := Open(t.Context(), "nats://u:secret@"+nowhere(t)+"/b"); err == nil || !strings.Contains(err.Error(), "none of the servers") ||
		strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
