//go:build full

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

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
