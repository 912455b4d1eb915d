//go:build full

package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

func init() {
	declaredAt["kubernetes"], declaredAt["s3"], declaredAt["dynamodb"] = kubernetestest.URL, s3test.URL, dynamodbtest.URL
	declaredAt["nats"] = greetingServer
}

// greetingServer is the URL of a server of NATS that only greets: a Locker connects when it is opened.
func greetingServer(tb testing.TB) string {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var work sync.WaitGroup
	tb.Cleanup(work.Wait)
	tb.Cleanup(func() { _ = listener.Close() })
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tb.Cleanup(func() { _ = conn.Close() })
			work.Go(func() {
				_, _ = io.WriteString(conn, `INFO {"server_id":"x","version":"2.15.0","proto":1,"headers":true,"max_payload":8388608}`+"\r\n")
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "PING") {
						_, _ = io.WriteString(conn, "PONG\r\n")
					}
				}
			})
		}
	})
	return "nats://" + listener.Addr().String() + "/bucket"
}

// The command works on Leases, and its doctor names a missing right and shows no credential.
func TestKubernetes(t *testing.T) {
	server := kubernetestest.Start(t)
	at := server.URL(t)
	if out, code := output("run", "-b", at, "job", "--", "true"); code != 0 || server.Lease("job") == nil {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := output("ls", "-b", at); code != 0 || !strings.Contains(out, "job") {
		t.Errorf("code %d: %s", code, out)
	}
	for verb, want := range map[string]int{"": 0, "watch": codeWrong} {
		allow := server.Deny(verb)
		out, code := output("doctor", "-b", at)
		if code != want || !strings.Contains(out, "API server") || !strings.Contains(out, "may not watch Leases") != (want == 0) ||
			strings.Contains(out, kubernetestest.Token) {
			t.Errorf("without the verb %q: code %d: %s", verb, code, out)
		}
		allow()
	}
}

// The command works on objects, and its doctor names a missing right and shows no credential.
func TestS3(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
	server := s3test.Start(t)
	at := server.URL()
	if out, code := output("run", "-b", at, "job", "--", "true"); code != 0 || server.Object("job") == nil {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := output("ls", "-b", at); code != 0 || !strings.Contains(out, "job") {
		t.Errorf("code %d: %s", code, out)
	}
	for action, want := range map[string]int{"": 0, "PutObject": codeWrong} {
		allow := server.Deny(action)
		out, code := output("doctor", "-b", at)
		if code != want || !strings.Contains(out, "bucket") || !strings.Contains(out, "may not s3:PutObject") != (want == 0) ||
			strings.Contains(out, s3test.KeyID) || strings.Contains(out, s3test.Secret) {
			t.Errorf("without the right to %q: code %d: %s", action, code, out)
		}
		allow()
	}
}

// The command makes the table and works on items, and its doctor names a missing right and shows no credential.
func TestDynamoDB(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", dynamodbtest.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", dynamodbtest.Secret)
	server := dynamodbtest.Start(t)
	server.SetTable(dynamodbtest.Table, nil)
	at := server.URL()
	if out, code := output("doctor", "-b", at); code != 0 || !strings.Contains(out, "does not exist yet") ||
		server.TableNamed(dynamodbtest.Table) != nil {
		t.Errorf("without a table: code %d: %s", code, out)
	}
	if out, code := output("run", "-b", at, "job", "--", "true"); code != 0 || server.Item("job") == nil {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := output("ls", "-b", at); code != 0 || !strings.Contains(out, "job") {
		t.Errorf("code %d: %s", code, out)
	}
	for action, want := range map[string]int{"": 0, "PutItem": codeWrong} {
		allow := server.Deny(action)
		out, code := output("doctor", "-b", at)
		if code != want || !strings.Contains(out, "rights") || !strings.Contains(out, "may not dynamodb:PutItem") != (want == 0) ||
			strings.Contains(out, dynamodbtest.KeyID) || strings.Contains(out, dynamodbtest.Secret) {
			t.Errorf("without the right to %q: code %d: %s", action, code, out)
		}
		allow()
	}
}
