package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Hosts are hidden in a report, and what only looks like one stays.
func TestHideHosts(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const backend = "mongodb://u:p@dbserver:27017,other/app?proxyHost=gate&listen=postgres%3A%2F%2Fx%3Ay%40second%3A5432%2Fapp"
	for text, want := range map[string]string{
		"connection(db1.corp.example:27017[-4]) closed":     "connection(…[-4]) closed",
		"dial tcp 10.1.2.3:5432: refused":                   "dial tcp …: refused",
		"lookup cluster0.ab1cd.mongodb.net failed":          "… failed",
		"lookup db1.internal: no such host":                 "…: no such host",
		"dbserver does not answer":                          "… does not answer",
		"gate and second answer":                            "… and … answer",
		"dial tcp [fe80::1]:27017":                          "dial tcp …",
		"no entry for host \"2001:db8::17\", user":          "no entry for host \"…\", user",
		"from ::1 and fe80::1%eth0":                         "from … and …",
		"the mongo shell of mongodb, other":                 "the mongo shell of mongodb, …",
		"the lock is held by " + machine + "/12":            "the lock is held by …/12",
		"the primary is db.internal.":                       "the primary is ….",
		"the primary is db.internal:27017":                  "the primary is …",
		"no answer of (DB-1.INTERNAL)":                      "no answer of (…)",
		"redis-0.redis, pg.example.sh and holdfast.local":   "…, … and …",
		"x509: certificate is valid for xn--bcher.xn--p1ai": "x509: certificate is valid for …",
	} {
		if got := hideHosts(text, backend); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{
		"MongoDB 8.0.4, replica set rs0", "PostgreSQL 18.6 (Debian 18.6-1.pgdg12+1)", "PostgreSQL 17rc1, 16.4-1.pgdg22.04+1", "Redis v7.0.rc",
		"race/exclusion: 2 hold the lock at once", "no pg_hba.conf entry", "open /etc/ssl/locks-ca.pem, node.js and schema.sql", "certify.go:131",
		"context.DeadlineExceeded of *net.OpError", "driver.ErrHeld", "at 12:34:56, at 9:05, after 1.5s", "e.g. a lock, i.e. a name",
		"the type of 'x'::text and now()::date", "pg_catalog.now", "holdfast_locks_listed", "a…b", "1.2.3", "took 0.5 ms. Then", "std::string",
	} {
		if got := hideHosts(text, backend); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got := hideHosts("connect to mongodb: mongo does not answer", "mongodb://mongo/app"); got != "connect to mongodb: … does not answer" {
		t.Error(got)
	}
}

// A folder is hidden however the URL writes it: drivers name it as the system does. So are the folders above it, except the first.
func TestHideFolders(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for backend, folder := range map[string]string{
		"file:/home/ada/locks":                "/home/ada/locks",
		"file:///home/ada/locks?retention=2h": "/home/ada/locks",
		"file://localhost/home/ada/locks/":    "/home/ada/locks",
		"file:/home//ada/./locks":             "/home/ada/locks",
		"file:/home/ada/my%20locks":           "/home/ada/my locks",
		"file:./locks":                        here + "/locks",
	} {
		if folder, err = filepath.Abs(folder); err != nil { // with a drive on Windows
			t.Fatal(err)
		}
		text := "open " + folder + "/holdfast_certify_x/job: no space; " + filepath.Dir(folder) + ": mode 0777, /home: 0755"
		if got, want := hideHosts(text, backend), "open …/holdfast_certify_x/job: no space; …: mode 0777, /home: 0755"; got != want {
			t.Errorf("%s: %q, want %q", backend, got, want)
		}
	}
}

// The names of metrics look like hosts.
func TestHideHostsKeepsMetrics(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := regexp.MustCompile("holdfast[._][a-z._]+").FindAllString(string(page), -1)
	if len(metrics) < 20 {
		t.Fatalf("the page names %q", metrics)
	}
	for _, m := range metrics {
		if got := hideHosts(m, "mem:"); got != m && !strings.HasPrefix(m, "holdfast.go") {
			t.Errorf("%s becomes %s", m, got)
		}
	}
}
