//go:build unix

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// Instances with one shared folder have the same certificate, and each has a home folder of its own. It is there after
// the one that obtained it was killed, also for an instance that starts later.
func TestInstancesShareTheCertificate(t *testing.T) {
	program := processes.Build(t)
	database := mongotest.Collection(t).Database()
	t.Setenv("LOCKS", storageURL(t, mongotest.URI(t), database.Name()))
	t.Setenv("FOLDER", t.TempDir())
	start := func(name string) (process *processes.Process, port string) {
		port = freePort(t)
		home := filepath.Join(t.TempDir(), name)
		process = processes.Start(t, "env", "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home,
			"INSTANCE="+name, "HTTP_PORT="+freePort(t), "HTTPS_PORT="+port, program, "run")
		if _, err := os.Stat(filepath.Join(home, "caddy", "certificates")); err == nil {
			t.Error("certificates are in the home folder")
		}
		return process, port
	}
	first, port := start("first")
	want := certificate(t, port)
	_, port = start("second")
	if got := certificate(t, port); got != want {
		t.Errorf("the second instance has certificate %s, the first %s", got, want)
	}
	first.Kill()
	if got := certificate(t, port); got != want {
		t.Errorf("after the kill the second instance has certificate %s, before %s", got, want)
	}
	_, port = start("third")
	if got := certificate(t, port); got != want {
		t.Errorf("the third instance has certificate %s, the first %s", got, want)
	}
}

// certificate waits until an instance serves TLS, and returns its certificate's serial number.
func certificate(t *testing.T, port string) string {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var conn *tls.Conn
		dialer := &net.Dialer{Timeout: 5 * time.Second}
		// The authority is the cluster's own; only the certificate's number matters here.
		conn, err = tls.DialWithDialer(dialer, "tcp", "127.0.0.1:"+port, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true})
		if err != nil {
			continue
		}
		defer conn.Close()
		return fmt.Sprintf("%x", conn.ConnectionState().PeerCertificates[0].SerialNumber)
	}
	t.Fatalf("no certificate within a minute: %v", err)
	return ""
}

// storageURL adds a database to a connection string.
func storageURL(t *testing.T, uri, database string) string {
	t.Helper()
	hosts, options, ok := strings.Cut(uri, "/?")
	if !ok {
		t.Fatalf("%q is not of the form mongodb://HOSTS/?OPTIONS", uri)
	}
	return hosts + "/" + database + "?" + options
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
